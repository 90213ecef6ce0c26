"""Targets: systems and CPUs that libraries run on, and how host code is compiled and linked for each.

A new system is a System here; a new CPU of one is a row of TARGETS.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashdepot.errors import FlashdepotError, not_one_of
from flashdepot.model.recipe import PrecompiledHeader, filled
from flashdepot.model.target import LINUX, WINDOWS, LibraryNames, Platform, Version

if TYPE_CHECKING:
    from flashdepot.toolchain.linked import Linked
    from flashdepot.toolchain.zig import Linker, Zig


class System(msgspec.Struct, frozen=True):
    """What is the same on every CPU of an operating system.

    ``names`` are those of a library's files. ``words`` are what clang is given, ``link_words`` what the linker is given;
    they are part of a library's key. ``static_needs`` are the libraries of the system that the static library refers to.
    ``file_words`` are what the files next to the libraries say on this system only, by their names in the templates.

    ``link`` makes the libraries in a folder from objects in the order given, and reads what they export and need. It
    raises :class:`CompileError` when the linker or the archiver refuses, and :class:`FlashdepotError` when a library
    exports or needs something that it must not.
    """

    names: LibraryNames
    object_suffix: str
    words: tuple[str, ...]
    link_words: tuple[str, ...]
    static_needs: tuple[str, ...]
    file_words: tuple[tuple[str, str], ...]
    link: Callable[[TargetSpec, Zig, Sequence[Path], Path, Path], Linked]


class TargetSpec(msgspec.Struct, frozen=True):
    """One target: a system and a CPU.

    ``zig`` and ``clang`` are its names there, ``cpu`` the oldest processor. ``headers`` are the folders of zig's
    ``lib/libc/include`` that hold its C library. ``libc_floor`` is the GNU C library it promises to run on.
    """

    platform: Platform
    system: System
    zig: str
    clang: str
    cpu: str
    headers: tuple[str, ...]
    libc_floor: Version | None = None

    def __str__(self) -> str:
        return str(self.platform)


def exported_names(version_script: str) -> tuple[str, ...]:
    """The names that the version script of the Linux library makes global, in order."""
    section = re.search(r"global:(.*?)local:", version_script, re.DOTALL)
    return tuple(sorted(re.findall(r"(\w+);", section[1]))) if section else ()


def write_definition(folder: Path, dll: str, names: Iterable[str]) -> Path:
    """Write a module-definition file, ``DLL.def``: these names of a DLL and no others."""
    path = folder / f"{dll}.def"
    path.write_text("\n".join([f"LIBRARY {dll}.dll", "EXPORTS", *names, ""]), encoding="ascii", newline="\n")
    return path


_EXPORTS = "templates/libflashattention.map"


def _link_linux(target: TargetSpec, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
    """Make ``libflashattention.so.1`` and ``libflashattention.a``."""
    from flashdepot.binary.elf import read_shared_library  # noqa: PLC0415  (every command knows the targets, and few link)
    from flashdepot.binary.objects import privately  # noqa: PLC0415
    from flashdepot.toolchain.linked import Linked, require, verify_objects, verify_shared  # noqa: PLC0415

    verify_objects(objects)
    objects = privately(objects, folder / "objects")
    static, shared = folder / LINUX.static[0], folder / LINUX.shared
    linker = zig.linker(target.zig, folder)
    # D: no dates and no owners, so that equal objects make equal archives.
    require(linker.run("ar", "rcsD", str(static), *map(str, objects)), static)
    exports = shutil.copyfile(native / _EXPORTS, folder / Path(_EXPORTS).name)
    words = [word.replace(f"{{native}}/{_EXPORTS}", str(exports)) for word in target.system.link_words]
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


_LINUX = System(
    names=LINUX,
    object_suffix=".o",
    words=("-D__GLIBC_MINOR__=17",),
    link_words=(
        "-shared",
        "-s",
        f"-Wl,-soname,{LINUX.shared}",
        f"-Wl,--version-script={{native}}/{_EXPORTS}",
        "-Wl,--no-undefined",
        "-Wl,--gc-sections",
        "-Wl,-z,now",
        "-Wl,-z,relro",
    ),
    static_needs=("dl", "pthread"),
    file_words=(
        ("LINKED_BY", f'IMPORTED_SONAME "{LINUX.shared}"'),
        ("RUN_PATH", "-Wl,-rpath,${libdir} "),
        ("STATIC_LIB", f"-l:{LINUX.static[0]}"),
    ),
    link=_link_linux,
)
"""ELF and the GNU C library."""


DLL_START = Path(__file__).with_name("dll_start.cpp")
"""The source of the DLL's entry point, and of the little else that a program has from its own C library."""

_MINGW_IMPORTS = "libflashattention.dll.a"
"""The name that MinGW's linkers look for first; the bytes are those of the import library for MSVC."""


def _link_windows(target: TargetSpec, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
    """Make ``flashattention.dll``, its import library and ``flashattention.lib``."""
    from flashdepot.binary.objects import for_every_linker, privately  # noqa: PLC0415  (every command knows the targets, and few link)
    from flashdepot.toolchain.linked import Linked, require, verify_dll, verify_import_library  # noqa: PLC0415
    from flashdepot.toolchain.zig import Linker  # noqa: PLC0415

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
    names = exported_names((native / "templates" / "libflashattention.map").read_text(encoding="utf-8"))
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
    from flashdepot.toolchain.linked import require  # noqa: PLC0415  (every command knows the targets, and few link)

    definition = write_definition(linker.folder, dll, names)
    made = definition.with_suffix(".lib")
    require(linker.run("dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(made)), made)
    return made


def _dll_start(target: TargetSpec, linker: Linker) -> Path:
    from flashdepot.toolchain.linked import require  # noqa: PLC0415  (every command knows the targets, and few link)

    source = shutil.copyfile(DLL_START, linker.folder / DLL_START.name)
    made = source.with_suffix(target.system.object_suffix)
    words = filled({"zig": str(linker.zig.lib)}, *cxx_words(target)[1:])
    require(linker.run(*words, "-o", str(made), "-x", "c++", str(source)), made)
    return made


_WINDOWS = System(
    names=WINDOWS,
    object_suffix=".obj",
    words=(
        "-D__MSVCRT_VERSION__=0xE00",
        "-D_WIN32_WINNT=0x0a00",
        "-DFA_STATIC",  # the definition file exports; what the objects exported, a program would as well
        "-U__ELF__",  # clang 19 defines it for CUDA whatever the target is, and NVIDIA's headers ask for it
        "-mms-bitfields",
        "-fno-use-init-array",
        "-fno-use-cxa-atexit",
    ),
    link_words=(
        "-nologo",
        "-lldmingw",
        "-dll",
        "-machine:x64",
        "-entry:DllMainCRTStartup",
        "-include:_tls_used",
        "-opt:ref",
        "-Brepro",  # no date
        "-build-id:no",
    ),
    static_needs=("kernel32",),
    file_words=(
        ("LINKED_BY", f'IMPORTED_IMPLIB "${{_FlashAttention_root}}/lib/shared/{WINDOWS.shared_linked}"'),
        ("RUN_PATH", ""),
        ("STATIC_LIB", "-lflashattention"),
    ),
    link=_link_windows,
)
"""PE and the universal C runtime, which is part of Windows 10 and later."""


_GLIBC = Version("2.17")

TARGETS = (
    TargetSpec(
        Platform("linux", "x86_64"),
        _LINUX,
        zig="x86_64-linux-gnu.2.17",
        clang="x86_64-unknown-linux4.19.0-gnu2.17.0",
        cpu="x86-64",
        headers=("x86_64-linux-gnu", "generic-glibc", "x86-linux-any", "any-linux-any"),
        libc_floor=_GLIBC,
    ),
    TargetSpec(
        Platform("linux", "aarch64"),
        _LINUX,
        zig="aarch64-linux-gnu.2.17",
        clang="aarch64-unknown-linux4.19.0-gnu2.17.0",
        cpu="generic",
        headers=("aarch64-linux-gnu", "generic-glibc", "aarch64-linux-any", "any-linux-any"),
        libc_floor=_GLIBC,
    ),
    TargetSpec(
        Platform("windows", "x86_64"),
        _WINDOWS,
        zig="x86_64-windows-gnu",
        clang="x86_64-unknown-windows-gnu",
        cpu="x86-64",
        headers=("any-windows-any",),
    ),
)
"""Every target there is."""


def parse_target(text: str) -> TargetSpec:
    """Read ``linux-aarch64``; :raises UsageError: for one that there is not, naming those that there are."""
    for target in TARGETS:
        if str(target) == text.strip().lower():
            return target
    raise not_one_of(text, "a target", map(str, TARGETS))


def target_of(platform: Platform) -> TargetSpec:
    """The target of a platform."""
    return parse_target(str(platform))


# zig's clang is given the words of ``clang -cc1`` that zig itself gives it for C++ and a target, less what differs between
# machines and what only says the default again. ``zig c++`` refuses CUDA sources.
_PROGRAM = ("{zig_program}", "clang", "-cc1")

_FOR_ALL = (
    "-emit-obj",
    "-O2",
    "-disable-free",
    "-disable-llvm-verifier",
    "-discard-value-names",
    "-mrelocation-model",
    "pic",
    "-pic-level",
    "2",
    "-mframe-pointer=all",
    "-fmath-errno",
    "-ffp-contract=on",
    "-mconstructor-aliases",
    "-funwind-tables=2",
    "-ffunction-sections",
    "-fdata-sections",
    "-faddrsig",
    "-nostdsysteminc",
    "-nobuiltininc",
    "-std=c++17",
    "-fdeprecated-macro",
    "-fgnuc-version=4.2.1",
    "-fvisibility=hidden",
    "-fno-rtti",
    "-DNDEBUG",
    "-D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCPP_HAS_NO_VENDOR_AVAILABILITY_ANNOTATIONS",
    "-D_LIBCPP_PSTL_BACKEND_SERIAL",
    "-D_LIBCPP_ABI_VERSION=1",
    "-D_LIBCPP_ABI_NAMESPACE=__1",
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
)

_CUDA = (
    "-aux-triple",
    "nvptx64-nvidia-cuda",
    "-target-sdk-version=12.3",
    "-fcuda-allow-variadic-functions",
    "-fcxx-exceptions",  # upstream's headers spell throw; no object ends up with one
    "-Wno-deprecated-declarations",
    "-D_USE_MATH_DEFINES",
    "-fcuda-include-gpubinary",
    "{fatbin}",
    "-include",
    "{native}/host/host_view.h",
)

CXX_OUTPUTS = (
    *("-dependency-file", "{depfile}", "-MT", "{output}", "-sys-header-deps"),
    *("-o", "{output}", "-x", "c++", "{source}"),
)
CUDA_OUTPUTS = (*CXX_OUTPUTS[:-2], "cuda", "{source}")


def cxx_words(target: TargetSpec) -> tuple[str, ...]:
    """The beginning of a command that compiles C++ for a target."""
    cpu = ("-triple", target.clang, "-target-cpu", target.cpu)
    folders = ("libcxx/include", "libcxxabi/include", "include", *(f"libc/include/{name}" for name in target.headers))
    headers = (word for folder in folders for word in ("-isystem", f"{{zig}}/{folder}"))
    return (*_PROGRAM, *cpu, *_FOR_ALL, *target.system.words, "-resource-dir", "{zig}/clang", *headers)


def cuda_words(target: TargetSpec) -> tuple[str, ...]:
    """The beginning of a command that compiles the host side of a CUDA source, around ``{fatbin}``."""
    return (*cxx_words(target), *_CUDA)


def precompiled(words: tuple[str, ...]) -> PrecompiledHeader:
    """What the words ``-include``, compiled without the source and its fatbin.

    :param words: all but the outputs of a command that begins with :func:`cuda_words`.
    """
    fatbin = words.index("-fcuda-include-gpubinary")
    others = (*words[:fatbin], *words[fatbin + 2 :])
    make = ("-emit-pch" if word == "-emit-obj" else word for word in others)
    return PrecompiledHeader((*make, *CUDA_OUTPUTS), ("-include-pch", "{header}"))
