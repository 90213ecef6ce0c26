"""Objects to libraries on Windows: ``flashattention.lib``, ``flashattention.dll`` and its import library, proved."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from flashdepot.binary.archive import is_import, read_members
from flashdepot.binary.pe import PeFile
from flashdepot.binary.window import open_window
from flashdepot.build.linked import Linked, require
from flashdepot.errors import FlashdepotError
from flashdepot.model.library_names import WINDOWS
from flashdepot.system.process import Finished, run
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.long_commands import response_text
from flashdepot.toolchain.msvc import beside
from flashdepot.toolchain.msvc_linking import DLL_FLAGS, SYSTEM_LIBRARIES

LIB_FLAGS = ("/NOLOGO", "/MACHINE:X64")

_EXPORTED_BY_CUDART = frozenset({"NvOptimusEnablementCuda"})
"""A number, by which drivers of laptops know CUDA programs: a directive in cudart_static.lib exports it."""

_ALLOWED_DLLS = re.compile(
    r"(kernel32|advapi32|shell32|user32|ole32|ntdll|ucrtbase|vcruntime\d+(_\d+)?|msvcp\d+(_\d+)?|concrt\d+"
    r"|api-ms-win-[\w-]+)\.dll",
    re.IGNORECASE,
)
"""Windows itself and the C and C++ runtimes. No cudart64_*.dll, and the driver's nvcuda.dll is loaded when needed."""


def link(objects: Sequence[Path], toolchain: Toolchain, native: Path, folder: Path) -> Linked:
    """Make the static library, the DLL and its import library in ``folder`` from objects in the order given.

    :raises CompileError: when ``lib`` or ``link`` refuses.
    :raises FlashdepotError: when the DLL exports or needs something that it must not.
    """
    static, shared = folder / "static", folder / "shared"
    static.mkdir()
    shared.mkdir()
    names = exported_names((native / "templates" / "libflashattention.map").read_text(encoding="utf-8"))
    definition = folder / "flashattention.def"
    definition.write_text(definition_text(names), encoding="ascii")
    archive, dll, imports = static / WINDOWS.static[0], shared / WINDOWS.shared, shared / WINDOWS.shared_linked
    paths = [str(path) for path in objects]
    require(_run(toolchain, "lib.exe", [*LIB_FLAGS, f"/OUT:{archive}", *paths], folder), archive)
    shutil.copyfile(archive, static / WINDOWS.static[1])
    outputs = [f"/DEF:{definition}", f"/OUT:{dll}", f"/IMPLIB:{imports}"]
    libraries = [str(toolchain.nvcc.static_runtime), *SYSTEM_LIBRARIES]
    require(_run(toolchain, "link.exe", [*DLL_FLAGS, *outputs, *paths, *libraries], folder), dll)
    prove_dll(dll, names)
    prove_import_library(imports)
    places = {f"lib/static/{name}": static / name for name in WINDOWS.static}
    return Linked({**places, f"lib/shared/{dll.name}": dll, f"lib/shared/{imports.name}": imports})


def exported_names(version_script: str) -> tuple[str, ...]:
    """The names that the version script of the Linux library makes global, in order: one list serves both systems."""
    section = re.search(r"global:(.*?)local:", version_script, re.DOTALL)
    return tuple(sorted(re.findall(r"(\w+);", section[1]))) if section else ()


def definition_text(names: Iterable[str]) -> str:
    """A module-definition file that exports these names and no others."""
    return "\n".join(["LIBRARY flashattention", "EXPORTS", *(f"  {name}" for name in names), ""])


def prove_dll(path: Path, names: Sequence[str]) -> None:
    """The promise that other programs rely on: our functions alone, and nothing but Windows and its C runtime beneath.

    :raises FlashdepotError: when it is broken.
    """
    with open_window(path) as window:
        dll = PeFile(window)
        exported, needed, machine = dll.exported, [entry.dll for entry in dll.imports], dll.machine
    if machine != "x86_64":
        raise FlashdepotError(f"{path.name} is for {machine}, and x86_64 was asked for.")
    if missing := sorted(set(names) - exported):
        raise FlashdepotError(f"{path.name} does not export {', '.join(missing)}.")
    if foreign := sorted(exported - set(names) - _EXPORTED_BY_CUDART):
        raise FlashdepotError(f"{path.name} exports symbols that are not its own: {', '.join(foreign[:5])}.")
    if unwanted := sorted(name for name in needed if _ALLOWED_DLLS.fullmatch(name) is None):
        raise FlashdepotError(f"{path.name} needs libraries that it must not: {', '.join(unwanted)}.")


def prove_import_library(path: Path) -> None:
    """:raises FlashdepotError: when the import library refers to no DLL: it is then a static library by mistake."""
    with open_window(path) as window:
        if not any(is_import(member.window) for member in read_members(window)):
            raise FlashdepotError(f"{path.name} is no import library: no member of it names a DLL.")


def _run(toolchain: Toolchain, program: str, arguments: Sequence[str], folder: Path) -> Finished:
    """Run a program of MSVC with its arguments in a file: those of all objects are longer than a command may be."""
    file = folder / f"{program}.rsp"
    file.write_bytes(response_text(arguments))
    return run([str(beside(toolchain.cxx, program)), f"@{file}"], env=toolchain.whole_environment(), timeout=1200)
