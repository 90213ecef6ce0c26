"""The flash-attn that an environment has, and the files that are its own."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from flashdepot.errors import UsageError
from flashdepot.install.environment import Environment

_NAME = "flash-attn"
_CACHE = "__pycache__"


def present_version(environment: Environment) -> str | None:
    """The version that is installed; ``None`` without one."""
    return next((found.version for found in _installed(environment)), None)


def places(environment: Environment, wheel: Path) -> list[Path]:
    """The files and folders that installing a wheel can change: those of the flash-attn that is there, and its own.

    A package's folder counts as a whole, with what others have put there since: compiled modules, later additions.

    :raises UsageError: when what is there does not say which files are its own.
    """
    found: set[Path] = set()
    for distribution in _installed(environment):
        files = distribution.files
        if files is None:
            raise UsageError(
                f"flash-attn {distribution.version} in {environment.prefix} was not installed by pip or uv: nothing "
                "says which files are its own, so it could not be put back.",
                hint=f"Remove it first: {environment.python} -m pip uninstall flash-attn",
            )
        for file in files:
            path = Path(os.path.normpath(str(distribution.locate_file(file))))
            found.add(_whole(path, environment))
    with zipfile.ZipFile(wheel) as archive:
        found |= {environment.platlib / name.partition("/")[0] for name in archive.namelist()}
    return sorted(found)


def _whole(path: Path, environment: Environment) -> Path:
    """The top-level package that a file belongs to; the file itself outside of packages."""
    for site in (environment.purelib, environment.platlib):
        if site in path.parents:
            top = path.relative_to(site).parts[0]
            return path if top == _CACHE else site / top
    return path


def _installed(environment: Environment) -> Iterator[Distribution]:
    sites = dict.fromkeys((str(environment.platlib), str(environment.purelib)))
    for distribution in distributions(path=list(sites)):
        name = distribution.metadata["Name"]
        if name and canonicalize_name(name) == _NAME:
            yield distribution
