"""What a thing needs of the place where it is to work: a wheel, a library, a compiled file."""

from __future__ import annotations

import msgspec

from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Platform, Version

UNKNOWN = "not known"
"""In the place of what a name does not tell and the bytes would."""


class PlatformNeed(msgspec.Struct, frozen=True):
    """Operating systems and CPUs that it is made for; ``spelled`` as its tags or its kind of file say it."""

    platforms: tuple[Platform, ...]
    spelled: str


class PythonNeed(msgspec.Struct, frozen=True):
    """Pairs of Python tag and ABI tag, any of which will do, and the oldest Python where ``py3`` promises too much."""

    tags: tuple[tuple[str, str], ...]
    spelled: str
    oldest: Version | None = None


class LibcNeed(msgspec.Struct, frozen=True):
    """``glibc`` or ``musl``; it certainly runs with ``certain`` or newer, and never with what is older than ``oldest``.

    ``builder`` is the system that it was built on, where only that is known.
    """

    name: str
    certain: Version | None = None
    oldest: Version | None = None
    builder: str = ""


class CxxNeed(msgspec.Struct, frozen=True):
    """The newest symbol versions of libstdc++ that it takes: ``GLIBCXX_*`` and ``CXXABI_*``."""

    glibcxx: Version | None = None
    cxxabi: Version | None = None


class TorchNeed(msgspec.Struct, frozen=True):
    """The minor version of PyTorch that it was built for, or the oldest that will do; ``minor`` may be unknown."""

    minor: str = ""
    oldest: Version | None = None


class CudaNeed(msgspec.Struct, frozen=True):
    """The CUDA whose runtime library it takes from PyTorch: ``12.4``, ``12``, or :data:`UNKNOWN`."""

    cuda: str


class AbiNeed(msgspec.Struct, frozen=True):
    """Whether it was built with the new C++ ABI of libstdc++; ``None`` where that is not known."""

    new: bool | None


class CodeNeed(msgspec.Struct, frozen=True):
    """Device code: the SASS that it has, the newest PTX, and the CUDA that built it, ``""`` where that is not known."""

    sass: tuple[Architecture, ...]
    ptx: Architecture | None = None
    cuda: str = ""


class DriverNeed(msgspec.Struct, frozen=True):
    """The CUDA that built it, ``12.4`` or ``12``; ``oldest`` is the oldest driver, where more than that is known."""

    cuda: str
    oldest: Version | None = None


class Needs(msgspec.Struct, frozen=True):
    """Every part is ``None`` where it asks nothing of the kind.

    ``accelerator`` says that it works through a PyTorch that computes with CUDA; ``preview`` is the torch whose
    development version it was built against; ``oldest_gpu`` is the oldest GPU that has the instructions it uses.
    """

    platform: PlatformNeed | None = None
    accelerator: bool | None = None
    torch: TorchNeed | None = None
    preview: str | None = None
    cuda: CudaNeed | None = None
    cxx11_abi: AbiNeed | None = None
    python: PythonNeed | None = None
    libc: LibcNeed | None = None
    libstdcxx: CxxNeed | None = None
    oldest_gpu: Architecture | None = None
    code: CodeNeed | None = None
    driver: DriverNeed | None = None
