"""Objects to libraries on Windows: ``flashattention.lib``, ``flashattention.dll`` and its import library, proved."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from flashdepot.model.library_names import WINDOWS
from flashdepot.system.process import Finished, run
from flashdepot.targets.checks import prove_dll, prove_import_library
from flashdepot.targets.exports import definition_text, exported_names
from flashdepot.targets.linked import Linked, require
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.long_commands import response_text
from flashdepot.toolchain.msvc import beside
from flashdepot.toolchain.msvc_linking import DLL_FLAGS, SYSTEM_LIBRARIES

LIB_FLAGS = ("/NOLOGO", "/MACHINE:X64")


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


def _run(toolchain: Toolchain, program: str, arguments: Sequence[str], folder: Path) -> Finished:
    """Run a program of MSVC with its arguments in a file: those of all objects are longer than a command may be."""
    file = folder / f"{program}.rsp"
    file.write_bytes(response_text(arguments))
    return run([str(beside(toolchain.cxx, program)), f"@{file}"], env=toolchain.whole_environment(), timeout=1200)
