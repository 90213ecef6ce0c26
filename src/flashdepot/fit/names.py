"""What a published wheel needs, as far as its name and what is known of its builder tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from flashdepot.facts.torch_builds import default_cxx11_abi
from flashdepot.facts.wheel_builders import builder_of, is_preview
from flashdepot.families import oldest_gpu
from flashdepot.fit.needs import (
    UNKNOWN,
    AbiNeed,
    CodeNeed,
    CudaNeed,
    DriverNeed,
    LibcNeed,
    Needs,
    PlatformNeed,
    PythonNeed,
    TorchNeed,
)
from flashdepot.model.architecture import Architecture
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.wheel_needs import OLDEST_PYTHON, OLDEST_TORCH
from flashdepot.model.wheel_request import FLASH_ATTN, OFFICIAL, is_ours
from flashdepot.model.wheel_tag import glibc_floor, platform_of

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


def _preview(source: str, version: str, torch: str) -> str | None:
    return torch if source == OFFICIAL and is_preview(torch, version) else None


def _cuda(source: str, cuda: str) -> CudaNeed | None:
    return None if is_ours(source) else CudaNeed(cuda or UNKNOWN)


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


def _oldest_gpu(distribution: str, version: str) -> Architecture:
    return _FIRST_GENERATION if distribution == FLASH_ATTN and version.startswith("1.") else oldest_gpu()


def _code(sass: tuple[str, ...], ptx: str, cuda: str) -> CodeNeed:
    return CodeNeed(tuple(map(Architecture.parse, sass)), Architecture.parse(ptx) if ptx else None, cuda)


READERS: Mapping[str, Reader] = {
    "platform": Reader(("platform",), _platform),
    "accelerator": Reader(("distribution",), lambda _: True),
    "torch": Reader(("source", "torch"), _torch),
    "preview": Reader(("source", "version", "torch"), _preview),
    "cuda": Reader(("source", "cuda"), _cuda),
    "cxx11_abi": Reader(("source", "torch", "cuda", "cxx11_abi", "platform"), _abi),
    "python": Reader(("source", "python", "abi"), _python),
    "libc": Reader(("source", "version", "platform"), _libc),
    "libstdcxx": Reader(("distribution",), lambda _: None),
    "oldest_gpu": Reader(("distribution", "version"), _oldest_gpu),
    "code": Reader(("sass", "ptx", "cuda"), lru_cache(maxsize=4096)(_code)),
    "driver": Reader(("cuda",), lambda cuda: DriverNeed(cuda) if cuda else None),
}
"""Every part of :class:`Needs`."""


def needs_of_name(wheel: PublishedWheel) -> Needs:
    """What one wheel needs. A name says nothing of libstdc++."""
    return Needs(
        **{part: reader.read(*(getattr(wheel, field) for field in reader.fields)) for part, reader in READERS.items()}
    )
