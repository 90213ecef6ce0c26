"""The flash-attn that an environment has, and what else is installed there."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from flashdepot.errors import UsageError
from flashdepot.model.python_environment import PythonEnvironment

DISTRIBUTION = "flash-attn"


def present_version(environment: PythonEnvironment) -> str | None:
    """The version that is installed; ``None`` without one."""
    return next((found.version for found in _flash_attn(environment)), None)


def own_files(environment: PythonEnvironment) -> list[Path]:
    """The files of the flash-attn that is there, by its own records, and what Python compiled of them.

    :raises UsageError: when it does not say which files are its own, or is another installer's to remove.
    """
    found: list[Path] = []
    for distribution in _flash_attn(environment):
        _require_replaceable(distribution, environment)
        listed = [Path(os.path.normpath(str(distribution.locate_file(file)))) for file in distribution.files or ()]
        modules = {path.parent / "__pycache__" / path.stem for path in listed if path.suffix == ".py"}
        caches = {path for folder in {module.parent for module in modules} for path in folder.glob("*.pyc")}
        compiled = {path for path in caches if path.parent / path.name.partition(".")[0] in modules}
        found += [*listed, *sorted(compiled.difference(listed))]
    return found


def owner_of(path: Path, environment: PythonEnvironment) -> str | None:
    """The distribution that a file is of; ``None`` where no record names it."""
    for distribution in installed(environment):
        name = Path(os.path.relpath(path, str(distribution.locate_file("")))).as_posix()
        if name in _recorded(distribution):
            return str(distribution.metadata["Name"])
    return None


def installed(environment: PythonEnvironment) -> Iterator[Distribution]:
    """All that is installed in the environment's own folders."""
    sites = dict.fromkeys((str(environment.platlib), str(environment.purelib)))
    return iter(distributions(path=list(sites)))


def _flash_attn(environment: PythonEnvironment) -> Iterator[Distribution]:
    return (d for d in installed(environment) if canonicalize_name(d.metadata["Name"] or "") == DISTRIBUTION)


def _require_replaceable(distribution: Distribution, environment: PythonEnvironment) -> None:
    version, python = distribution.version, environment.executable
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was installed by conda, whose records would go wrong.",
            hint=f"Remove it first: conda remove --prefix {environment.prefix} flash-attn",
        )
    if distribution.files is None:
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was not installed by pip or uv: nothing "
            "says which files are its own, so it could not be put back.",
            hint=f"Remove it first: {python} -m pip uninstall flash-attn",
        )


def _recorded(distribution: Distribution) -> set[str]:
    """The names of its files, relative to where it is installed; the disk is not asked for each."""
    record = distribution.read_text("RECORD")
    if record is None:
        return {file.as_posix() for file in distribution.files or ()}
    return {row[0] for row in csv.reader(record.splitlines()) if row}
