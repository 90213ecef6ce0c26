"""Targets: systems and CPUs that libraries run on, and the words that host code is compiled and linked with for each.

A new system is a System here; a new CPU of one is a row of TARGETS.
"""

from __future__ import annotations

import msgspec

from flashdepot.errors import not_one_of
from flashdepot.model.recipe import PrecompiledHeader
from flashdepot.model.target import LINUX, WINDOWS, LibraryNames, Platform, Version


class System(msgspec.Struct, frozen=True):
    """What is the same on every CPU of an operating system.

    ``names`` are those of a library's files. ``words`` are what clang is given, ``link_words`` what the linker is given;
    they are part of a library's key. ``static_needs`` are the libraries of the system that the static library refers to.
    ``file_words`` are what the files next to the libraries say on this system only, by their names in the templates.
    """

    names: LibraryNames
    object_suffix: str
    words: tuple[str, ...]
    link_words: tuple[str, ...]
    static_needs: tuple[str, ...]
    file_words: tuple[tuple[str, str], ...]


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


VERSION_SCRIPT = "templates/libflashattention.map"
"""What the library for Linux exports, in the folder of the C layer."""


_LINUX = System(
    names=LINUX,
    object_suffix=".o",
    words=("-D__GLIBC_MINOR__=17",),
    link_words=(
        *("-shared", "-s", f"-Wl,-soname,{LINUX.shared}", f"-Wl,--version-script={{native}}/{VERSION_SCRIPT}"),
        *("-Wl,--no-undefined", "-Wl,--gc-sections", "-Wl,-z,now", "-Wl,-z,relro"),
    ),
    static_needs=("dl", "pthread"),
    file_words=(
        ("LINKED_BY", f'IMPORTED_SONAME "{LINUX.shared}"'),
        ("RUN_PATH", "-Wl,-rpath,${libdir} "),
        ("STATIC_LIB", f"-l:{LINUX.static[0]}"),
    ),
)
"""ELF and the GNU C library."""


_WINDOWS = System(
    names=WINDOWS,
    object_suffix=".obj",
    words=(
        *("-D__MSVCRT_VERSION__=0xE00", "-D_WIN32_WINNT=0x0a00"),
        "-DFA_STATIC",  # the definition file exports; what the objects exported, a program would as well
        "-U__ELF__",  # clang 19 defines it for CUDA whatever the target is, and NVIDIA's headers ask for it
        *("-mms-bitfields", "-fno-use-init-array", "-fno-use-cxa-atexit"),
    ),
    link_words=(
        *("-nologo", "-lldmingw", "-dll", "-machine:x64", "-entry:DllMainCRTStartup", "-include:_tls_used", "-opt:ref"),
        *("-Brepro", "-build-id:no"),  # no date
    ),
    static_needs=("kernel32",),
    file_words=(
        ("LINKED_BY", f'IMPORTED_IMPLIB "${{_FlashAttention_root}}/lib/shared/{WINDOWS.shared_linked}"'),
        ("RUN_PATH", ""),
        ("STATIC_LIB", "-lflashattention"),
    ),
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
    *("-emit-obj", "-O2", "-disable-free", "-disable-llvm-verifier", "-discard-value-names"),
    *("-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=all", "-fmath-errno", "-ffp-contract=on"),
    *("-mconstructor-aliases", "-funwind-tables=2", "-ffunction-sections", "-fdata-sections", "-faddrsig"),
    *("-nostdsysteminc", "-nobuiltininc", "-std=c++17", "-fdeprecated-macro", "-fgnuc-version=4.2.1"),
    *("-fvisibility=hidden", "-fno-rtti", "-DNDEBUG"),
    *("-D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS", "-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS"),
    *("-D_LIBCPP_HAS_NO_VENDOR_AVAILABILITY_ANNOTATIONS", "-D_LIBCPP_PSTL_BACKEND_SERIAL"),
    *("-D_LIBCPP_ABI_VERSION=1", "-D_LIBCPP_ABI_NAMESPACE=__1"),
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
)

_CUDA = (
    *("-aux-triple", "nvptx64-nvidia-cuda", "-target-sdk-version=12.3", "-fcuda-allow-variadic-functions"),
    "-fcxx-exceptions",  # upstream's headers spell throw; no object ends up with one
    *("-Wno-deprecated-declarations", "-D_USE_MATH_DEFINES"),
    *("-fcuda-include-gpubinary", "{fatbin}", "-include", "{native}/host/host_view.h"),
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
