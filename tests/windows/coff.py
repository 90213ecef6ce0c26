"""A stand-in for Visual Studio's linking side, made of LLVM's tools: they read and write the same formats."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.nvcc import Nvcc

TOOLS = ("clang", "lld-link", "llvm-lib", "llvm-dlltool")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
REASON = f"needs {', '.join(MISSING)} (apt-get install clang lld llvm)"

_RUNTIME = """
int _fltused = 1;
int __stdcall _DllMainCRTStartup(void *module, unsigned reason, void *reserved) { return 1; }
"""
_CUDART = r"""
__attribute__((section(".drectve"), used)) static const char directives[] =
    " /DEFAULTLIB:LIBCMT /EXPORT:NvOptimusEnablementCuda,DATA ";
int NvOptimusEnablementCuda = 1;
__declspec(dllimport) unsigned long GetLastError(void);
int cudaPeekAtLastError(void) { return (int)GetLastError(); }
"""


def compile_coff(source: str, output: Path) -> Path:
    """A C source, which may include nothing, as an x64 object."""
    file = output.with_suffix(".c")
    file.write_text(source)
    target = ["--target=x86_64-pc-windows-msvc", "-ffreestanding", "-O1", "-c"]
    subprocess.run(["clang", *target, str(file), "-o", str(output)], check=True)
    return output


def make_visual_studio(folder: Path) -> Toolchain:
    """Folders with ``lib.exe`` and ``link.exe``, the libraries of Windows that a link asks for, and a CUDA runtime.

    The names of the libraries are found by the variable LIB alone, as with the real ones.
    """
    programs = folder / "VC/Tools/MSVC/14.44.35207/bin/Hostx64/x64"
    programs.mkdir(parents=True)
    (programs / "cl.exe").touch()
    (programs / "lib.exe").symlink_to(str(shutil.which("llvm-lib")))
    (programs / "link.exe").symlink_to(str(shutil.which("lld-link")))
    system = folder / "sdk lib"
    system.mkdir()
    for name, functions in {"kernel32": "GetLastError", "advapi32": "a", "shell32": "s", "user32": "u"}.items():
        _import_library(system, name, functions)
    _archive(system / "msvcrt.lib", _RUNTIME)
    cuda = folder / "cuda"
    (cuda / "lib" / "x64").mkdir(parents=True)
    _archive(cuda / "lib" / "x64" / "cudart_static.lib", _CUDART)
    nvcc = Nvcc(cuda, Version("13.0.88"), (), frozenset(), None, None)
    cxx = HostCompiler("cl", str(programs / "cl.exe"), Version("19.44.35211"))
    return Toolchain(nvcc, cxx, "a test", {"LIB": str(system)})


def with_environment(toolchain: Toolchain, environment: Mapping[str, str]) -> Toolchain:
    """The same programs with other variables."""
    return Toolchain(toolchain.nvcc, toolchain.cxx, toolchain.reason, environment)


def _import_library(folder: Path, name: str, function: str) -> None:
    definition = folder / f"{name}.def"
    definition.write_text(f"LIBRARY {name}.dll\nEXPORTS\n  {function}\n")
    command = ["llvm-dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(folder / f"{name}.lib")]
    subprocess.run(command, check=True)


def _archive(path: Path, source: str) -> None:
    made = compile_coff(source, path.with_suffix(".obj"))
    subprocess.run(["llvm-lib", f"/OUT:{path}", str(made)], check=True)
