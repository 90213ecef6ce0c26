"""What somebody needs of a library, for one host."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flashdepot.model.architecture import Architecture
from flashdepot.model.environment import Environment
from flashdepot.model.selection import Selection
from flashdepot.model.target import Platform, Version
from flashdepot.model.upstream import UpstreamId, leading


class Request(msgspec.Struct, frozen=True):
    """The upstream of each family, selection, and the facts of the host that the library must run on. It says nothing of how.

    ``gpus`` are the architectures that must be served: those present, or those named. ``driver`` and ``libc`` are
    ``None`` where the host has none or they are unknown; then they restrict nothing. ``libc_name`` is as in
    :class:`Environment`. ``cuda_major`` is set when a
    certain one was asked for. ``front_end`` is set when a certain one was asked for. ``c_layer`` is the digest of the C
    layer of the flashdepot that asks: one of another release may lack what callers of this one expect. ``compiler`` is the
    digest of nvcc where the folder of one was named.
    """

    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    platform: Platform
    gpus: tuple[Architecture, ...]
    driver: Version | None = None
    libc: Version | None = None
    libc_name: str | None = None
    cuda_major: int | None = None
    front_end: str | None = None
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
