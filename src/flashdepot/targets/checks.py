"""What a library promises whoever links it, looked at in the bytes that a linker made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flashdepot.binary.archive import is_import, read_members
from flashdepot.binary.elf import SharedLibrary, undefined_symbols
from flashdepot.binary.pe import PeFile
from flashdepot.binary.window import open_window
from flashdepot.errors import FlashdepotError
from flashdepot.model.library_names import LINUX

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

_EXPORTED_BY_CUDART = frozenset({"NvOptimusEnablementCuda"})
"""A number, by which drivers of laptops know CUDA programs: a directive in cudart_static.lib exports it."""

_ALLOWED_DLLS = re.compile(
    r"(kernel32|advapi32|shell32|user32|ole32|ntdll|ucrtbase|vcruntime\d+(_\d+)?|msvcp\d+(_\d+)?|concrt\d+"
    r"|api-ms-win-[\w-]+)\.dll",
    re.IGNORECASE,
)
"""Windows itself and the C and C++ runtimes. No cudart64_*.dll, and the driver's nvcuda.dll is loaded when needed."""


def prove_objects(objects: Sequence[Path]) -> None:
    """No path of a call may end the program, upstream's code included: so no object refers to what would."""
    for path in objects:
        found = sorted(undefined_symbols(path) & _ENDS_THE_PROGRAM)
        if found:
            raise FlashdepotError(
                f"{path.name} calls {', '.join(found)}, which ends the program that uses the library.",
                hint="Report it with the version of flash-attn; its kernels from another version may do: --upstream",
            )


def prove_shared(facts: SharedLibrary) -> None:
    """The promise that other programs rely on: our symbols alone, and nothing but the C library beneath."""
    foreign = sorted(name for name in facts.exported if not name.startswith("fa_"))
    if foreign or not facts.exported:
        raise FlashdepotError(
            f"{LINUX.shared} exports symbols that are not its own: {', '.join(foreign[:5]) or 'none at all'}."
        )
    needed = sorted(n for n in facts.needed if n not in _SYSTEM_LIBRARIES and not n.startswith("ld-linux"))
    if needed:
        raise FlashdepotError(f"{LINUX.shared} needs libraries that it must not: {', '.join(needed)}.")


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
