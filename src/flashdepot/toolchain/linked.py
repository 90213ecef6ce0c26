"""What linking gives: files for a library's folder, verified in their bytes, and what they need of a system."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.binary.coff import PeFile
from flashdepot.binary.elf import SharedLibrary, undefined_symbols
from flashdepot.binary.objects import is_import, read_members
from flashdepot.binary.window import open_window
from flashdepot.errors import CompileError, FlashdepotError, MissingToolError
from flashdepot.model.target import LINUX, Version
from flashdepot.process.confinement import UNCONFINED
from flashdepot.process.run import Finished, first_error

_LITTLE_SPACE = 10**9
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_BUS_ERROR = re.compile(r"Bus error|signal 7\b")


def disk_full(name: str, made: str, log: str, folder: Path) -> MissingToolError | None:
    """The error of a compiler or linker that had no space to write; ``None`` when that was not it.

    :param made: what was being done to it: compiled, linked.
    """
    free = shutil.disk_usage(folder).free
    # A full disk takes the message of it as well, and ends a linker that writes into mapped memory by a signal.
    cut_short = not log.strip() or _BUS_ERROR.search(log) is not None
    if not (_NO_SPACE.search(log) or (cut_short and free < _LITTLE_SPACE)):
        return None
    return MissingToolError(
        f"{name}: the disk that holds {folder} filled up while it was {made} ({free / 1e6:.0f} MB are free now); "
        "compilers need up to 1 GB for their temporary files.",
        hint="Free space there, or use another disk: --depot DIR. What was finished is kept.",
    )


_SYSTEM_LIBRARIES = frozenset({"libc.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0"})

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
"""What code of the library must not call: anyone who links it decides when the program ends."""

_ALLOWED_DLLS = re.compile(r"(kernel32|ntdll|ucrtbase|api-ms-win-[\w-]+)\.dll", re.IGNORECASE)
"""Windows itself and its C runtime. No cudart64_*.dll, and the driver's nvcuda.dll is loaded when needed."""


def verify_objects(objects: Sequence[Path]) -> None:
    """No path of a call may end the program, upstream's code included: so no object refers to what would."""
    for path in objects:
        found = sorted(undefined_symbols(path) & _ENDS_THE_PROGRAM)
        if found:
            raise FlashdepotError(
                f"{path.name} calls {', '.join(found)}, which ends the program that uses the library.",
                hint="Report it with the version of flash-attn; its kernels from another version may work: --upstream",
            )


def verify_shared(facts: SharedLibrary) -> None:
    """Verify what other programs rely on: it exports only our symbols and needs only the C library."""
    foreign = sorted(name for name in facts.exported if not name.startswith("fa_"))
    if foreign or not facts.exported:
        raise FlashdepotError(
            f"{LINUX.shared} exports symbols that are not its own: {', '.join(foreign[:5]) or 'none at all'}."
        )
    needed = sorted(n for n in facts.needed if n not in _SYSTEM_LIBRARIES and not n.startswith("ld-linux"))
    if needed:
        raise FlashdepotError(f"{LINUX.shared} needs libraries that it must not: {', '.join(needed)}.")


def verify_dll(path: Path, names: Sequence[str]) -> None:
    """Verify what other programs rely on: it exports only our functions and needs only Windows and its C runtime."""
    with open_window(path) as window:
        dll = PeFile(window)
        exported, needed, machine = dll.exported, [entry.dll for entry in dll.imports], dll.machine
    if machine != "x86_64":
        raise FlashdepotError(f"{path.name} is for {machine}, and x86_64 was asked for.")
    if missing := sorted(set(names) - exported):
        raise FlashdepotError(f"{path.name} does not export {', '.join(missing)}.")
    if foreign := sorted(exported - set(names)):
        raise FlashdepotError(f"{path.name} exports symbols that are not its own: {', '.join(foreign[:5])}.")
    if unwanted := sorted(name for name in needed if _ALLOWED_DLLS.fullmatch(name) is None):
        raise FlashdepotError(f"{path.name} needs libraries that it must not: {', '.join(unwanted)}.")


def verify_import_library(path: Path) -> None:
    """:raises FlashdepotError: when the import library refers to no DLL: it is then a static library by mistake."""
    with open_window(path) as window:
        if not any(is_import(member.window) for member in read_members(window)):
            raise FlashdepotError(f"{path.name} is not an import library: no member of it names a DLL.")


class Linked(msgspec.Struct, frozen=True):
    """The libraries of one recipe: ``files`` by their place in the library's folder, ``links`` from place to name.

    ``libc_floor`` is the oldest GNU C library that they run with, ``None`` where there is none.
    """

    files: Mapping[str, Path]
    links: Mapping[str, str] = msgspec.field(default_factory=dict)
    libc_floor: Version | None = None


def require(done: Finished, result: Path) -> None:
    """Check the program that was to make a library."""
    if done.status != 0:
        if (full := disk_full(result.name, "linked", done.output, result.parent)) is not None:
            raise full
        raise CompileError(
            f"{result.name} cannot be linked: {first_error(done.output)}",
            hint=f"If the linker needs a file that its confinement hides, {UNCONFINED}=1 turns that off: see docs/security.md",
        )
