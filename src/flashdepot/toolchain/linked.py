"""How objects become the libraries of a target: linked, and verified in their bytes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.binary.coff import PeFile
from flashdepot.binary.elf import SharedLibrary, read_shared_library, undefined_symbols
from flashdepot.binary.objects import for_every_linker, is_import, privately, read_members
from flashdepot.binary.window import open_window
from flashdepot.errors import CompileError, FlashdepotError, MissingToolError
from flashdepot.model.recipe import filled
from flashdepot.model.target import LINUX, WINDOWS, Version
from flashdepot.process.confinement import UNCONFINED
from flashdepot.process.run import Finished, first_error
from flashdepot.toolchain.targets import VERSION_SCRIPT, TargetSpec, cxx_words
from flashdepot.toolchain.zig import Linker, Zig

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
        *("exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail"),
        *("_ZSt9terminatev", "__cxa_throw", "__cxa_rethrow"),
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


def _link_linux(target: TargetSpec, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
    """Make ``libflashattention.so.1`` and ``libflashattention.a``."""
    verify_objects(objects)
    objects = privately(objects, folder / "objects")
    static, shared = folder / LINUX.static[0], folder / LINUX.shared
    linker = zig.linker(target.zig, folder)
    # D: no dates and no owners, so that equal objects make equal archives.
    require(linker.run("ar", "rcsD", str(static), *map(str, objects)), static)
    exports = shutil.copyfile(native / VERSION_SCRIPT, folder / Path(VERSION_SCRIPT).name)
    words = [word.replace(f"{{native}}/{VERSION_SCRIPT}", str(exports)) for word in target.system.link_words]
    needs = [f"-l{name}" for name in target.system.static_needs]
    command = ["cc", "-target", target.zig, *words, "-o", str(shared), *map(str, objects), *needs]
    require(linker.run(*command), shared)
    facts = read_shared_library(shared)
    verify_shared(facts)
    if target.libc_floor and facts.libc_floor and facts.libc_floor > target.libc_floor:
        raise FlashdepotError(
            f"{shared.name} needs GNU libc {facts.libc_floor}, and for {target} {target.libc_floor} is promised."
        )
    return Linked(
        {f"lib/static/{LINUX.static[0]}": static, f"lib/shared/{LINUX.shared}": shared},
        {f"lib/shared/{LINUX.shared_linked}": LINUX.shared},
        target.libc_floor,
    )


DLL_START = Path(__file__).with_name("dll_start.cpp")
"""The source of the DLL's entry point, and of the little else that a program has from its own C library."""

_MINGW_IMPORTS = "libflashattention.dll.a"
"""The name that MinGW's linkers look for first; the bytes are those of the import library for MSVC."""


def _link_windows(target: TargetSpec, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
    """Make ``flashattention.dll``, its import library and ``flashattention.lib``."""
    static, shared = folder / "static", folder / "shared"
    static.mkdir()
    shared.mkdir()
    linker = Linker(zig, folder)
    archive, dll, imports = static / WINDOWS.static[0], shared / WINDOWS.shared, shared / WINDOWS.shared_linked
    own = privately(objects, folder / "objects")
    (folder / "members").mkdir()
    members = [folder / "members" / path.name for path in own]
    for path, member in zip(own, members, strict=True):
        member.write_bytes(for_every_linker(path.read_bytes(), path.name))
    require(linker.run("ar", "rcsD", str(archive), *map(str, members)), archive)
    shutil.copyfile(archive, static / WINDOWS.static[1])
    names = exported_names((native / VERSION_SCRIPT).read_text(encoding="utf-8"))
    definition = write_definition(folder, "flashattention", names)
    start = _dll_start(target, linker)
    system = [_import_library(linker, name, functions) for name, functions in DLL_IMPORTS.items()]
    outputs = (f"-def:{definition}", f"-out:{dll}", f"-implib:{imports}")
    require(linker.run("lld-link", *target.system.link_words, *outputs, *map(str, (start, *members, *system))), dll)
    shutil.copyfile(imports, shared / _MINGW_IMPORTS)
    verify_dll(dll, names)
    verify_import_library(imports)
    places = {f"lib/static/{name}": static / name for name in WINDOWS.static}
    files = (dll, imports, shared / _MINGW_IMPORTS)
    return Linked({**places, **{f"lib/shared/{path.name}": path for path in files}})


DLL_IMPORTS = {
    "KERNEL32": ("FreeLibrary", "GetModuleHandleA", "GetProcAddress", "LoadLibraryExA"),
    "api-ms-win-crt-environment-l1-1-0": ("getenv",),
    "api-ms-win-crt-heap-l1-1-0": ("calloc", "free"),
    "api-ms-win-crt-private-l1-1-0": ("memcmp", "memcpy"),
    "api-ms-win-crt-runtime-l1-1-0": ("_execute_onexit_table", "_initialize_onexit_table", "_register_onexit_function"),
    "api-ms-win-crt-stdio-l1-1-0": ("__stdio_common_vsprintf", "__stdio_common_vsscanf", "fclose", "fgets", "fopen"),
    "api-ms-win-crt-string-l1-1-0": ("memset", "strcmp", "strcspn"),
}
"""All that the DLL calls of Windows and of the universal C runtime, by the DLL that has it."""


def _import_library(linker: Linker, dll: str, names: Iterable[str]) -> Path:
    definition = write_definition(linker.folder, dll, names)
    made = definition.with_suffix(".lib")
    require(linker.run("dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(made)), made)
    return made


def _dll_start(target: TargetSpec, linker: Linker) -> Path:
    source = shutil.copyfile(DLL_START, linker.folder / DLL_START.name)
    made = source.with_suffix(target.system.object_suffix)
    words = filled({"zig": str(linker.zig.lib)}, *cxx_words(target)[1:])
    require(linker.run(*words, "-o", str(made), "-x", "c++", str(source)), made)
    return made


def exported_names(version_script: str) -> tuple[str, ...]:
    """The names that the version script of the Linux library makes global, in order."""
    section = re.search(r"global:(.*?)local:", version_script, re.DOTALL)
    return tuple(sorted(re.findall(r"(\w+);", section[1]))) if section else ()


def write_definition(folder: Path, dll: str, names: Iterable[str]) -> Path:
    """Write a module-definition file, ``DLL.def``: these names of a DLL and no others."""
    path = folder / f"{dll}.def"
    path.write_text("\n".join([f"LIBRARY {dll}.dll", "EXPORTS", *names, ""]), encoding="ascii", newline="\n")
    return path


BY_SYSTEM: dict[str, Callable[[TargetSpec, Zig, Sequence[Path], Path, Path], Linked]] = {
    "linux": _link_linux,
    "windows": _link_windows,
}


def link(target: TargetSpec, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
    """Make the libraries of a target in a folder from objects in the order given, and read what they export and need.

    :param native: the folder of the C layer.
    :raises CompileError: when the linker or the archiver refuses.
    :raises FlashdepotError: when a library exports or needs something that it must not.
    """
    return BY_SYSTEM[target.platform.system](target, zig, objects, native, folder)
