"""Where the file is to be used: a machine, a Python, a torch; each only as far as it is known."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from flashdepot.doctor.check.torch_side import TorchSide
from flashdepot.errors import UsageError
from flashdepot.host.driver import newest_cuda
from flashdepot.host.libraries import CXX_LIBRARY, cxx_versions, system_folders
from flashdepot.model.architecture import Architecture
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version
from flashdepot.system.process import run

_ASK = """
import json, site, sys, sysconfig
paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path[1:]]
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:2]),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "paths": list(dict.fromkeys(p for p in paths if p)),
    "prefixes": list(dict.fromkeys([sys.prefix, sys.base_prefix])),
}))
"""


@dataclass(frozen=True)
class PythonFacts:
    """A Python: ``implementation`` is ``cpython``, ``paths`` are the folders that it imports from."""

    program: str
    implementation: str
    version: tuple[int, int]
    free_threaded: bool
    paths: tuple[Path, ...]
    prefixes: tuple[Path, ...]

    @property
    def label(self) -> str:
        """``Python 3.11``."""
        threads = ", free-threaded" if self.free_threaded else ""
        name = "Python" if self.implementation == "cpython" else self.implementation
        return f"{name} {self.version[0]}.{self.version[1]}{threads}"

    @property
    def torch_folder(self) -> Path | None:
        """Where its torch is, ``None`` without one."""
        return next((p / "torch" for p in self.paths if (p / "torch" / "version.py").is_file()), None)


def ask_python(program: str) -> PythonFacts:
    """Ask an interpreter, in a process of its own, what it is and where it imports from. It imports nothing else.

    :raises UsageError: when it is no Python.
    """
    done = run([program, "-c", _ASK], timeout=60, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        facts = json.loads(done.stdout.strip().splitlines()[-1])
        return PythonFacts(
            program=program,
            implementation=str(facts["implementation"]),
            version=(int(facts["version"][0]), int(facts["version"][1])),
            free_threaded=bool(facts["free_threaded"]),
            paths=tuple(Path(p) for p in facts["paths"]),
            prefixes=tuple(Path(p) for p in facts["prefixes"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        message = f"'{program}' does not answer as a Python does: {done.output.strip()[-200:] or 'it said nothing'}"
        raise UsageError(message, hint="Name an interpreter: --python .venv/bin/python") from error


@dataclass(frozen=True)
class Environment:
    """``gpus`` are compute capabilities, of the machine or named. ``is_here`` says whether the host is this machine."""

    host: HostRecord
    gpus: tuple[Architecture, ...]
    python: PythonFacts | None
    torch: TorchSide | None
    is_here: bool

    @property
    def libstdcxx(self) -> Version | None:
        """The newest ``GLIBCXX_*`` of the libstdc++ that is loaded, here conda's before the system's."""
        return self._cxx[0]

    @property
    def cxxabi(self) -> Version | None:
        """Its newest ``CXXABI_*``."""
        return self._cxx[1]

    @property
    def driver_cuda(self) -> Version | None:
        """The newest CUDA that the driver serves; ``None`` where no driver is known."""
        host = self.host
        return host.driver_cuda or (newest_cuda(host.driver, host.platform.system) if host.driver else None)

    @cached_property
    def _cxx(self) -> tuple[Version | None, Version | None]:
        if not self.is_here:
            return self.host.libstdcxx, self.host.cxxabi
        path = self.find_library(CXX_LIBRARY)
        return cxx_versions(path) if path is not None else (None, None)

    def find_library(self, name: str, near: Iterable[Path] = ()) -> Path | None:
        """The file that the loader, or torch when it is imported, would take for a soname; ``None`` without one."""
        return next((folder / name for folder in (*near, *self._folders) if (folder / name).is_file()), None)

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        if not self.is_here:
            return ()
        folders = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        if self.python is not None:
            folders += [prefix / "lib" for prefix in self.python.prefixes]
            for path in self.python.paths:
                folders += [path / "torch" / "lib", *sorted(path.glob("nvidia/*/lib")), path / "cusparselt" / "lib"]
        return (*folders, *system_folders())
