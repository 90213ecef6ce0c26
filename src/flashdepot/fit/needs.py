"""What a thing needs of the place where it is to work, and what the name of a published wheel tells of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from flashdepot.facts import builder_of, default_cxx11_abi, is_preview
from flashdepot.kernels import oldest_gpu
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import FLASH_ATTN, OFFICIAL, OLDEST_PYTHON, OLDEST_TORCH, glibc_floor, is_ours, platform_of

UNKNOWN = "not known"
"""Instead of what a name does not say and the bytes would."""


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
    development version it was built against; ``cuda`` is the CUDA whose runtime library it takes from PyTorch, ``12.4``,
    ``12``, or :data:`UNKNOWN`; ``oldest_gpu`` is the oldest GPU that has the instructions it uses.
    """

    platform: PlatformNeed | None = None
    accelerator: bool | None = None
    torch: TorchNeed | None = None
    preview: str | None = None
    cuda: str | None = None
    cxx11_abi: AbiNeed | None = None
    python: PythonNeed | None = None
    libc: LibcNeed | None = None
    libstdcxx: CxxNeed | None = None
    oldest_gpu: Architecture | None = None
    code: CodeNeed | None = None
    driver: DriverNeed | None = None


_FIRST_GENERATION = Architecture(7, 5)
"""The oldest GPU of flash-attn 1: Turing (its README)."""


class Reader(NamedTuple):
    """One part of :class:`Needs` as a function of a few fields of a wheel.

    Thousands of wheels have few distinct values in those, so each is read once for each distinct value.
    """

    fields: tuple[str, ...]
    read: Callable[..., Any]


def _platform(tags: str) -> PlatformNeed | None:
    if tags == "any":
        return None
    found = {tag: platform_of(tag) for tag in tags.split(".")}
    spelled = " or ".join(sorted({str(platform or tag) for tag, platform in found.items()}))
    return PlatformNeed(tuple(platform for platform in found.values() if platform is not None), spelled)


def _torch(source: str, torch: str) -> TorchNeed:
    if is_ours(source):
        return TorchNeed(oldest=OLDEST_TORCH)
    return TorchNeed(".".join(torch.split(".")[:2]))


def _abi(source: str, torch: str, cuda: str, cxx11_abi: bool | None, platform: str) -> AbiNeed | None:
    if is_ours(source) or "linux" not in platform:
        return None
    if cxx11_abi is None and torch:
        # That of torch's own build for the CUDA that the wheel names, because its builder has installed that one.
        local = f"cu{cuda.replace('.', '')}" if "." in cuda else ""
        machine = "aarch64" if platform.endswith("aarch64") else "x86_64"
        return AbiNeed(default_cxx11_abi(".".join(torch.split(".")[:2]), local, machine))
    return AbiNeed(cxx11_abi)


def _python(source: str, python: str, abi: str) -> PythonNeed:
    spelled = python if abi in {"none", python} else f"{python}-{abi}"
    tags = tuple((tag, kind) for tag in python.split(".") for kind in abi.split("."))
    return PythonNeed(tags, spelled, OLDEST_PYTHON if is_ours(source) else None)


def libc_of_tag(tags: str) -> LibcNeed | None:
    """The C library that a set of platform tags promises to do with; ``None`` where they promise nothing."""
    names = [tag for tag in tags.split(".") if "linux" in tag]
    if any(tag.startswith("musllinux") for tag in names):
        return LibcNeed("musl")
    floors = [floor for floor in map(glibc_floor, names) if floor is not None]
    return LibcNeed("glibc", min(floors), min(floors)) if floors else None


def _libc(source: str, version: str, tags: str) -> LibcNeed | None:
    promised = libc_of_tag(tags)
    if promised is not None or "linux" not in tags:
        return promised
    if is_ours(source):
        return LibcNeed("glibc")  # what it needs is known when it is linked
    builder = builder_of(source, version)
    return LibcNeed("glibc", builder.certain, builder.needs, builder.system)


def _code(sass: tuple[str, ...], ptx: str, cuda: str) -> CodeNeed:
    return CodeNeed(tuple(map(Architecture.parse, sass)), Architecture.parse(ptx) if ptx else None, cuda)


READERS: Mapping[str, Reader] = {
    "platform": Reader(("platform",), _platform),
    "accelerator": Reader(("distribution",), lambda _: True),
    "torch": Reader(("source", "torch"), _torch),
    "preview": Reader(
        ("source", "version", "torch"),
        lambda source, version, torch: torch if source == OFFICIAL and is_preview(torch, version) else None,
    ),
    "cuda": Reader(("source", "cuda"), lambda source, cuda: None if is_ours(source) else cuda or UNKNOWN),
    "cxx11_abi": Reader(("source", "torch", "cuda", "cxx11_abi", "platform"), _abi),
    "python": Reader(("source", "python", "abi"), _python),
    "libc": Reader(("source", "version", "platform"), _libc),
    "libstdcxx": Reader(("distribution",), lambda _: None),
    "oldest_gpu": Reader(
        ("distribution", "version"),
        lambda name, version: _FIRST_GENERATION if (name, version[:2]) == (FLASH_ATTN, "1.") else oldest_gpu(),
    ),
    "code": Reader(("sass", "ptx", "cuda"), lru_cache(maxsize=4096)(_code)),
    "driver": Reader(("cuda",), lambda cuda: DriverNeed(cuda) if cuda else None),
}
"""Every part of :class:`Needs`."""
