"""The words with which zig's clang compiles for a target.

They are those of ``clang -cc1``, as zig itself gives them for C++ and that target, less what differs between machines
and what only says the default again. ``zig c++`` cannot be asked to do it: it refuses CUDA sources.
"""

from __future__ import annotations

from flashdepot.model.recipe import PrecompiledHeader
from flashdepot.toolchain.targets import TargetSpec

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


def cxx_words(row: TargetSpec) -> tuple[str, ...]:
    """The beginning of a command that compiles C++ for a target."""
    return (*_PROGRAM, "-triple", row.clang, "-target-cpu", row.cpu, *_FOR_ALL, *row.system.words, *_headers(row))


def cuda_words(row: TargetSpec) -> tuple[str, ...]:
    """The beginning of a command that compiles the host side of a CUDA source, around ``{fatbin}``."""
    return (*cxx_words(row), *_CUDA)


def precompiled(words: tuple[str, ...]) -> PrecompiledHeader:
    """What the words ``-include``, compiled without the source and its fatbin.

    :param words: all but the outputs of a command that begins with :func:`cuda_words`.
    """
    fatbin = words.index("-fcuda-include-gpubinary")
    others = (*words[:fatbin], *words[fatbin + 2 :])
    make = ("-emit-pch" if word == "-emit-obj" else word for word in others)
    return PrecompiledHeader((*make, *CUDA_OUTPUTS), ("-include-pch", "{header}"))


def _headers(row: TargetSpec) -> tuple[str, ...]:
    folders = ("libcxx/include", "libcxxabi/include", "include", *(f"libc/include/{name}" for name in row.headers))
    resource = ("-resource-dir", "{zig}/clang")
    return (*resource, *(word for folder in folders for word in ("-isystem", f"{{zig}}/{folder}")))
