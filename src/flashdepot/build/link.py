"""Objects to libraries on Linux: ``libflashattention.a`` and ``libflashattention.so.1``, and the proof of what they export."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from flashdepot.binary.elf import SharedLibrary, read_shared_library, undefined_symbols
from flashdepot.build.linked import Linked, require
from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.model.library_names import LINUX
from flashdepot.system.process import run
from flashdepot.toolchain.choose import Toolchain

SONAME = LINUX.shared

_SYSTEM_LIBRARIES = frozenset(
    f"lib{name}.so.{number}" for name, number in (("c", 6), ("m", 6), ("dl", 2), ("rt", 1), ("pthread", 0))
)

_ENDS_THE_PROGRAM = frozenset(
    {
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "abort",
        "__assert_fail",
        "_ZSt9terminatev",
        "__cxa_throw",
        "__cxa_rethrow",
    }
)
"""What code of the library must not call: whoever links it decides when the program ends."""

LINK_FLAGS = (
    "-shared",
    f"-Wl,-soname,{SONAME}",
    "-Wl,--version-script={native}/templates/libflashattention.map",
    "-Wl,--exclude-libs,ALL",
    "-Wl,--no-undefined",
    "-Wl,--gc-sections",
    "-Wl,-z,now,-z,relro",
    "-Wl,--build-id=sha1",
    "-static-libstdc++",
    "-static-libgcc",
)


def link(objects: Sequence[Path], toolchain: Toolchain, native: Path, folder: Path) -> Linked:
    """Make both libraries in ``folder`` from objects in the order given.

    :raises CompileError: when the linker or the archiver refuses.
    :raises FlashdepotError: when an object may end the program, or the shared library exports or needs something that
        it must not.
    """
    _prove_objects(objects)
    static, shared = folder / LINUX.static[0], folder / SONAME
    archiver = shutil.which("ar")
    if archiver is None:
        raise MissingToolError("'ar' was not found; it makes the static library.", hint="Install it: binutils")
    # D: no dates and no owners, so that equal objects make equal archives.
    require(run([archiver, "rcsD", str(static), *map(str, objects)], timeout=600), static)
    flags = [flag.replace("{native}", str(native)) for flag in LINK_FLAGS]
    arguments = [toolchain.cxx.path, *flags, "-o", str(shared), *map(str, objects)]
    arguments += [str(toolchain.nvcc.static_runtime), "-ldl", "-lrt", "-lpthread"]
    require(run(arguments, timeout=1200), shared)
    facts = read_shared_library(shared)
    _prove(facts)
    return Linked(
        {f"lib/static/{LINUX.static[0]}": static, f"lib/shared/{SONAME}": shared},
        {f"lib/shared/{LINUX.shared_linked}": SONAME},
        facts.libc_floor,
    )


def _prove_objects(objects: Sequence[Path]) -> None:
    """No path of a call may end the program, upstream's code included: so no object refers to what would."""
    for path in objects:
        found = sorted(undefined_symbols(path) & _ENDS_THE_PROGRAM)
        if found:
            raise FlashdepotError(
                f"{path.name} calls {', '.join(found)}, which ends the program that uses the library.",
                hint="Report it with the version of flash-attn; its kernels from another version may do: --upstream",
            )


def _prove(facts: SharedLibrary) -> None:
    """The promise that other programs rely on: our symbols alone, and nothing but the C library beneath."""
    foreign = sorted(name for name in facts.exported if not name.startswith("fa_"))
    if foreign or not facts.exported:
        raise FlashdepotError(
            f"{SONAME} exports symbols that are not its own: {', '.join(foreign[:5]) or 'none at all'}."
        )
    needed = sorted(n for n in facts.needed if n not in _SYSTEM_LIBRARIES and not n.startswith("ld-linux"))
    if needed:
        raise FlashdepotError(f"{SONAME} needs libraries that it must not: {', '.join(needed)}.")
