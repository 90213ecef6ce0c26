"""C++ compilers and CUDA toolkits of the host."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import CudaToolkit, HostCompiler
from flashdepot.model.target import Version
from flashdepot.process.run import run
from flashdepot.toolchain.nvcc import inspect

_QUERY = ("-all", "-products", "*", "-property", "installationPath", "-utf8")
_TOOLSETS = "VC/Tools/MSVC/*/bin/Hostx64/x64/cl.exe"


def _find_msvc() -> tuple[HostCompiler, ...]:
    """Every ``cl`` for x64 of the installations that ``vswhere`` knows, newest first.

    A toolset's folder has its version: 14.44.35207 is cl 19.44.35207.
    """
    files = Path(os.environ.get("ProgramFiles(x86)", r"C:\Program Files (x86)"))  # noqa: SIM112
    vswhere = files / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    folders = _output(str(vswhere), *_QUERY, encoding="utf-8").splitlines() if vswhere.is_file() else ()
    programs = (program for folder in folders for program in Path(folder.strip()).glob(_TOOLSETS))
    found = [
        HostCompiler("cl", str(program), Version(f"19{version[1]}"))
        for program in programs
        if (version := re.fullmatch(r"14(\.\d+\.\d+)", program.parents[3].name))
    ]
    return tuple(sorted(found, key=lambda compiler: compiler.version, reverse=True))


def _output(*command: str, encoding: str | None = None) -> str:
    try:
        return run(command, timeout=30, encoding=encoding).output
    except FlashdepotError:
        return ""


_NEWEST_GCC = 16
_OLDEST_GCC = 9


def find_compilers() -> tuple[HostCompiler, ...]:
    """Compilers in the order of preference: ``NVCC_CCBIN``, ``CXX``, ``g++``, ``g++-N`` newest first, ``clang++``.

    On Windows only ``cl``: nvcc there calls no other.
    """
    if os.name == "nt":
        return _find_msvc()
    names = [os.environ.get("NVCC_CCBIN", ""), os.environ.get("CXX", ""), "g++"]
    names += [f"g++-{n}" for n in range(_NEWEST_GCC, _OLDEST_GCC - 1, -1)]
    names += ["clang++"]
    programs: dict[str, str] = {}
    for name in names:
        if name and (program := shutil.which(name)):
            programs.setdefault(os.path.realpath(program), program)
    with ThreadPoolExecutor() as pool:
        return tuple(compiler for compiler in pool.map(identify_compiler, programs.values()) if compiler)


def identify_compiler(program: str) -> HostCompiler | None:
    """Ask a program which compiler it is; ``None`` when nvcc cannot use it."""
    macros = dict(re.findall(r"#define (__\w+) (\d+)", _output(program, "-dM", "-E", "-x", "c++", os.devnull)))
    if "__clang_major__" in macros:
        kind, names = "clang++", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in macros:
        kind, names = "g++", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        return None
    return HostCompiler(kind, program, Version(".".join(macros.get(name, "0") for name in names)))


_NVCC = "nvcc.exe" if os.name == "nt" else "nvcc"


def find_toolkits() -> tuple[CudaToolkit, ...]:
    """Toolkits with an nvcc that runs, in the order of preference: environment, ``PATH``, usual places."""
    candidates: dict[str, tuple[str, Path]] = {}
    for found_by, nvcc in _candidates():
        if nvcc.is_file():
            candidates.setdefault(os.path.realpath(nvcc), (found_by, nvcc))
    found: dict[str, CudaToolkit] = {}
    with ThreadPoolExecutor() as pool:
        for toolkit in pool.map(lambda candidate: identify_toolkit(candidate[1], candidate[0]), candidates.values()):
            if toolkit is not None:
                found.setdefault(toolkit.root, toolkit)
    return tuple(found.values())


def identify_toolkit(nvcc: Path, found_by: str) -> CudaToolkit | None:
    """The toolkit that an nvcc belongs to, or ``None`` when the program does not answer as nvcc does.

    nvcc itself is asked for its root, because the program on ``PATH`` may be a link or a script of a distribution.
    """
    try:
        top = re.search(
            r"^#\$ TOP=(.+)$", run([str(nvcc), "--dryrun", "-c", "-x", "cu", os.devnull]).stderr, re.MULTILINE
        )
    except FlashdepotError:
        return None
    root = Path(os.path.realpath(Path(top[1].strip()) if top else nvcc.resolve().parent.parent))
    try:
        return inspect(root).toolkit(found_by)
    except FlashdepotError:  # it answers, and its toolkit is not where it says, as some distributions pack it
        version = re.search(r"\bV(\d+\.\d+\.\d+)", _output(str(nvcc), "--version"))
        return CudaToolkit(str(root), Version(version[1]), found_by, missing=(f"bin/{_NVCC}",)) if version else None


def _candidates() -> Iterator[tuple[str, Path]]:
    named = [(name, Path(os.environ[name])) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    yield from ((name, folder / "bin" / _NVCC) for name, folder in named)
    if program := shutil.which("nvcc"):
        yield "PATH", Path(program)
    yield from ((str(folder), folder / "bin" / _NVCC) for folder in _usual_places())


def _usual_places() -> list[Path]:
    if os.name == "nt":
        parent = Path(os.environ.get("ProgramFiles", r"C:\Program Files")) / "NVIDIA GPU Computing Toolkit" / "CUDA"  # noqa: SIM112
        return _newest_first(parent.glob("v*"))
    return [Path("/usr/local/cuda"), *_newest_first(Path("/usr/local").glob("cuda-*")), Path("/opt/cuda")]


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda path: tuple(map(int, re.findall(r"\d+", path.name))), reverse=True)
