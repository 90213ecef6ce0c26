"""Objects to libraries on Linux: ``libflashattention.a`` and ``libflashattention.so.1``, and the proof of what they export."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from flashdepot.binary.elf import read_shared_library
from flashdepot.errors import MissingToolError
from flashdepot.model.library_names import LINUX
from flashdepot.system.process import run
from flashdepot.targets.checks import prove_objects, prove_shared
from flashdepot.targets.linked import Linked, require
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.identity import LINKED_RUN_TIMES

SONAME = LINUX.shared

LINK_FLAGS = (
    "-shared",
    f"-Wl,-soname,{SONAME}",
    "-Wl,--version-script={native}/templates/libflashattention.map",
    "-Wl,--exclude-libs,ALL",
    "-Wl,--no-undefined",
    "-Wl,--gc-sections",
    "-Wl,-z,now,-z,relro",
    "-Wl,--build-id=sha1",
)


def link(objects: Sequence[Path], toolchain: Toolchain, native: Path, folder: Path) -> Linked:
    """Make both libraries in ``folder`` from objects in the order given.

    :raises CompileError: when the linker or the archiver refuses.
    :raises FlashdepotError: when an object may end the program, or the shared library exports or needs something that
        it must not.
    """
    prove_objects(objects)
    static, shared = folder / LINUX.static[0], folder / SONAME
    archiver = shutil.which("ar")
    if archiver is None:
        raise MissingToolError("'ar' was not found; it makes the static library.", hint="Install it: binutils")
    # D: no dates and no owners, so that equal objects make equal archives.
    require(run([archiver, "rcsD", str(static), *map(str, objects)], timeout=600), static)
    flags = [flag.replace("{native}", str(native)) for flag in LINK_FLAGS]
    arguments = [toolchain.cxx.path, *flags, "-o", str(shared), *map(str, objects)]
    arguments += [str(toolchain.nvcc.static_runtime), *LINKED_RUN_TIMES]
    require(run(arguments, timeout=1200), shared)
    facts = read_shared_library(shared)
    prove_shared(facts)
    return Linked(
        {f"lib/static/{LINUX.static[0]}": static, f"lib/shared/{SONAME}": shared},
        {f"lib/shared/{LINUX.shared_linked}": SONAME},
        facts.libc_floor,
    )
