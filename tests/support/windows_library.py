"""A library for Windows made with LLVM's tools, whose functions answer 42 instead of computing."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashdepot.build.objects import Linking
from flashdepot.depot.libraries import manifest_text
from flashdepot.files.disk import sha256_file
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.link.library import SYSTEM_LIBRARIES
from flashdepot.model.manifest import ManifestFile
from flashdepot.model.target import WINDOWS, Platform
from flashdepot.toolchain.linked import exported_names, write_definition
from flashdepot.toolchain.targets import target_of
from flashdepot.toolchain.zig import Zig
from support.depots import make_manifest
from support.tools import needs

needs_llvm = needs("clang", "lld-link", "llvm-lib")  # llvm-dlltool comes with it, and answers no question with success

_RUNTIME = """
int _fltused = 1;
int __stdcall _DllMainCRTStartup(void *module, unsigned reason, void *reserved) { return 1; }
"""

_PLACES = (
    *(f"static/{name}" for name in WINDOWS.static),
    f"shared/{WINDOWS.shared}",
    f"shared/{WINDOWS.shared_linked}",
)


def compile_coff(source: str, output: Path) -> Path:
    """A C source, which may include nothing, as an x64 object."""
    file = output.with_suffix(".c")
    file.write_text(source)
    target = ["--target=x86_64-pc-windows-msvc", "-ffreestanding", "-O1", "-c"]
    subprocess.run(["clang", *target, str(file), "-o", str(output)], check=True)
    return output


def make_system(folder: Path) -> Path:
    """A folder with the libraries of Windows that a link asks for; the variable LIB names it to a linker."""
    folder.mkdir(parents=True)
    for name, functions in {"kernel32": "GetLastError", "advapi32": "a", "shell32": "s", "user32": "u"}.items():
        _import_library(folder, name, functions)
    _archive(folder / "msvcrt.lib", _RUNTIME)
    return folder


def link_dll(system: Path, objects: Sequence[Path], folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """A static library, a DLL that exports these names and its import library, by their place in a library's folder."""
    made = {f"lib/{place}": folder / place for place in _PLACES}
    for path in made.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    static, again, dll, imports = made.values()
    paths = [str(path) for path in objects]
    _run("llvm-lib", "/NOLOGO", "/MACHINE:X64", f"/OUT:{static}", *paths)
    shutil.copyfile(static, again)
    words = ("/NOLOGO", "/DLL", "/MACHINE:X64", "/Brepro", f"/LIBPATH:{system}")
    outputs = (f"/DEF:{write_definition(folder, 'flashattention', names)}", f"/OUT:{dll}", f"/IMPLIB:{imports}")
    _run("lld-link", *words, *outputs, *paths, *SYSTEM_LIBRARIES)
    return made


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _import_library(folder: Path, name: str, function: str) -> None:
    definition = folder / f"{name}.def"
    definition.write_text(f"LIBRARY {name}.dll\nEXPORTS\n  {function}\n")
    command = ["llvm-dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(folder / f"{name}.lib")]
    subprocess.run(command, check=True)


def _archive(path: Path, source: str) -> None:
    made = compile_coff(source, path.with_suffix(".obj"))
    subprocess.run(["llvm-lib", f"/OUT:{path}", str(made)], check=True)


ANSWER = 42
_LAYER = """
__attribute__((section(".drectve"), used)) static const char directives[] = " /DEFAULTLIB:msvcrt ";
__declspec(dllimport) unsigned long GetLastError(void);
"""


@dataclass(frozen=True)
class ForgedLibrary:
    """The folder, and the value of the variable LIB with which a linker finds what Windows itself provides."""

    root: Path
    lib: str


def forge_library(root: Path, work: Path) -> ForgedLibrary:
    """Link stand-ins for the entry points, which call Windows, and add all that travels with a library."""
    system = make_system(work / "sdk lib")
    names = exported_names((NATIVE / "templates" / "libflashattention.map").read_text())
    bodies = [f"int {name}(void) {{ GetLastError(); return {ANSWER}; }}\n" for name in names]
    linked = link_dll(system, [compile_coff(_LAYER + "".join(bodies), work / "abi.obj")], work, names)
    files = {
        **linked,
        "include/flash_attention.h": NATIVE / "include" / "flash_attention.h",
    }
    texts = Linking(target_of(Platform("windows", "x86_64")), Zig(Path("zig"), "0.14.1")).texts("2.8.3.post2")
    for place, path in files.items():
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for place, text in texts.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    listed = (
        ManifestFile(place, sha256_file(root / place), (root / place).stat().st_size)
        for place in sorted({*files, *texts})
    )
    manifest = make_manifest(platform=Platform("windows", "x86_64"), libc_floor=None, files=tuple(listed))
    (root / "manifest.json").write_bytes(manifest_text(manifest))
    return ForgedLibrary(root, str(system))
