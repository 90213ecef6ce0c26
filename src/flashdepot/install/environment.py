"""A Python environment, asked about itself in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.host.python_environment import activated_python, resolve
from flashdepot.system.process import run

_QUESTIONS = """
import json, os, sys, sysconfig
from importlib import metadata

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

try:
    libc = os.confstr("CS_GNU_LIBC_VERSION").rpartition(" ")[2]
except (AttributeError, ValueError, OSError):
    libc = None
conda = os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
print(json.dumps({
    "python": sys.executable,
    "version": list(sys.version_info[:2]),
    "prefix": sys.prefix,
    "is_system": sys.prefix == sys.base_prefix and not conda,
    "is_marked": os.path.isfile(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")),
    "platform": sysconfig.get_platform(),
    "libc": libc,
    "paths": {name: sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts", "data")},
    "packages": {name: version(name) for name in ("torch", "einops", "pip")},
}))
"""
"""Runs under any Python 3.8 or newer. Versions come from files: nothing is imported that could fail."""


@dataclass(frozen=True)
class Environment:
    """Where an interpreter looks for packages, and what matters of what it has.

    ``is_system`` is true outside virtual and conda environments; ``is_marked`` says that the distribution of the
    interpreter asks for nothing to be installed there (PEP 668), which concerns the system's alone. ``platform`` is spelled as ``sysconfig`` does,
    ``linux-x86_64``; ``libc`` is the GNU C library's version. ``packages`` has the versions of torch, einops and pip.
    ``purelib``, ``platlib``, ``scripts`` and ``data`` are the folders that the parts of a wheel go to (PEP 427).
    """

    python: Path
    version: tuple[int, int]
    prefix: Path
    is_system: bool
    is_marked: bool
    platform: str
    libc: str | None
    purelib: Path
    platlib: Path
    scripts: Path
    data: Path
    packages: Mapping[str, str | None]


def active_python() -> Path:
    """The interpreter of the virtual or conda environment that is active in this shell.

    :raises UsageError: when none is.
    """
    if python := activated_python(os.environ):
        return Path(python)
    raise UsageError(
        "No virtual environment is active, so it is not known which Python to install into.",
        hint="Activate one, or name its interpreter: flashdepot install --python .venv/bin/python",
    )


def probe_environment(python: Path) -> Environment:
    """Ask an interpreter, or that of an environment's folder, about its environment.

    :raises UsageError: when it cannot be run, or is no Python that answers.
    """
    if python.is_dir():
        python = Path(resolve(str(python)))
    if not python.is_file():
        raise UsageError(f"There is no interpreter {python}.", hint="Name one that is: --python .venv/bin/python")
    # As it was named: the link in bin/ is what makes an interpreter that of a virtual environment.
    done = run([os.path.abspath(python), "-I", "-B", "-c", _QUESTIONS])  # noqa: PTH100
    try:
        answer = json.loads(done.stdout)
        return Environment(
            python=Path(answer["python"]),
            version=(answer["version"][0], answer["version"][1]),
            prefix=Path(answer["prefix"]),
            is_system=answer["is_system"],
            is_marked=answer["is_marked"],
            platform=answer["platform"],
            libc=answer["libc"],
            packages=answer["packages"],
            **{name: Path(answer["paths"][name]) for name in ("purelib", "platlib", "scripts", "data")},
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.status}"])[-1]
        raise UsageError(
            f"{python} does not answer as a Python would: {said}.", hint="Name a Python 3.9 or newer: --python PATH"
        ) from error
