"""What somebody asks of a library, and what that means for one host."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from flashdepot.model.environment import Environment
from flashdepot.model.recipe import UpstreamId, leading
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Dtype, Feature, Pass, Profile, Selection
from flashdepot.model.target import Architecture, Platform, Version


class Gpus(Enum):
    """GPUs that are meant without being named: those of the host, or all that can be served."""

    NATIVE = "native"
    UNIVERSAL = "universal"


class AnyCuda(Enum):
    """The CUDA toolkit that serves best."""

    AUTO = "auto"


GpuChoice: TypeAlias = Gpus | tuple[Architecture, ...]
CudaChoice: TypeAlias = AnyCuda | Version | Path


class LibraryRequest(msgspec.Struct, frozen=True):
    """What a library must have; ``None`` where nothing was said, which another request or a default may fill.

    ``upstream`` is a flash-attn version, a source folder, or ``git+URL@REF``. ``passes``, ``head_dims``, ``dtypes`` and
    ``features`` stand in place of the profile's. ``families`` are the names of kernel families. ``cuda`` is which nvcc builds: a version, or a toolkit's folder. ``target`` is where
    the library is to run, when that is not simply this machine.

    Typical usage::

        api.get(api.library_request(profile="inference", arch="80,90"), depot=api.open_depot())
    """

    upstream: str | None = None
    profile: Profile | None = None
    arch: GpuChoice | None = None
    passes: frozenset[Pass] | None = None
    head_dims: frozenset[int] | None = None
    dtypes: frozenset[Dtype] | None = None
    features: frozenset[Feature] | None = None
    families: frozenset[str] | None = None
    cuda: CudaChoice | None = None
    target: Platform | None = None

    def words(self) -> dict[str, str]:
        """The request in the words of the command line, for commands that are printed."""
        return {name: _spell(value) for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def or_else(self, other: LibraryRequest) -> LibraryRequest:
        """This request, with its gaps filled from another."""
        gaps = {name: getattr(other, name) for name in self.__struct_fields__ if getattr(self, name) is None}
        return replace(self, **gaps)

    @property
    def names_selection(self) -> bool:
        """Whether it says anything about what is selected."""
        said = (self.profile, self.passes, self.head_dims, self.dtypes, self.features, self.families)
        return any(value is not None for value in said)

    @property
    def is_all(self) -> bool:
        """Whether it asks for ``full``, by name or by naming nothing, and for nothing less of it."""
        less = (self.passes, self.head_dims, self.dtypes, self.features)
        return self.profile in (None, PROFILES["full"]) and all(v is None for v in less)

    @property
    def selected(self) -> Profile:
        """The profile with what stands in its place; ``full`` where none is named, so that nothing is missing."""
        said = {name: value for name in Profile.__struct_fields__ if (value := getattr(self, name)) is not None}
        return replace(self.profile or PROFILES["full"], **said)


def _spell(value: object) -> str:
    if isinstance(value, Profile):
        return next(name for name, profile in PROFILES.items() if profile == value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (frozenset, tuple)):
        members = [v.value if isinstance(v, Enum) else v for v in value]
        return "none" if not members else "all" if value == ALL_FEATURES else ",".join(map(str, sorted(members)))
    return str(value)


class Request(msgspec.Struct, frozen=True):
    """The upstream of each family, selection, and the facts of the host that the library must run on. It says nothing of how.

    ``gpus`` are the architectures that must be served: those present, or those named. ``driver`` and ``libc`` are
    ``None`` where the host has none or they are unknown; then they restrict nothing. ``libc_name`` is as in
    :class:`Environment`. ``cuda_major`` is set when a certain one was asked for. ``c_layer`` is the digest of the C layer of
    the flashdepot that asks: one of another release may lack what callers of this one expect. ``compiler`` is the digest of
    nvcc where the folder of one was named.
    """

    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    platform: Platform
    gpus: tuple[Architecture, ...]
    driver: Version | None = None
    libc: Version | None = None
    libc_name: str | None = None
    cuda_major: int | None = None
    c_layer: str | None = None
    compiler: str | None = None

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives the library its version."""
        return leading(self.upstreams)

    @property
    def facts(self) -> Environment:
        """The host, as far as a library asks for it."""
        name = self.libc_name or ("glibc" if self.libc else None)
        return Environment(self.platform, name, self.libc, gpus=self.gpus, driver=self.driver)


class Need(msgspec.Struct, frozen=True):
    """A request, what else a build needs of it, and a sentence where a choice was made.

    ``sources`` are what names the source of each family.
    """

    request: Request
    sources: Mapping[str, str]
    cuda: CudaChoice
    note: str
