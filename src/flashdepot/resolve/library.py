"""From words to a request, and from a request to a stored library."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashdepot.depot import Depot
from flashdepot.families import FAMILIES, default_family, oldest_gpu
from flashdepot.families.c_layer import c_layer_digest
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.model.selection import (
    Profile,
    Selection,
    parse_dtypes,
    parse_features,
    parse_head_dims,
    parse_passes,
    parse_profile,
    select,
)
from flashdepot.model.target import Version
from flashdepot.toolchain.architectures import choose_architectures

DEFAULT_PROFILE = "full"
"""All that upstream's own wheel has, so that nothing an application may call is missing."""

Rejected = tuple[tuple[Manifest, tuple[str, ...]], ...]
"""Stored libraries with the reasons why each does not serve."""


@dataclass(frozen=True)
class Wish:
    """What was asked for, as spelled on the command line; ``None`` where nothing was said."""

    upstream: str | None = None
    profile: str | None = None
    arch: str | None = None
    passes: str | None = None
    head_dims: str | None = None
    dtypes: str | None = None
    features: str | None = None
    cuda: str | None = None

    def or_else(self, other: Wish) -> Wish:
        """This wish, with the gaps filled from another."""
        gaps = {name: value for name, value in vars(other).items() if getattr(self, name) is None}
        return replace(self, **gaps)


@dataclass(frozen=True)
class Need:
    """A request, the words of it that a build needs besides, and a sentence where a choice was made.

    ``sources`` are what names the source of each family.
    """

    request: Request
    sources: Mapping[str, str]
    cuda: str
    note: str


@dataclass(frozen=True)
class Result:
    """A library that serves: how it came (``hit`` or ``built``), its manifest and folder, and the units behind it."""

    status: str
    manifest: Manifest
    path: Path
    compiled: int
    reused: int
    seconds: float


def understand(wish: Wish, host: HostRecord, depot: Depot) -> Need:
    """Turn words into a request for one host.

    :raises UsageError: for a word that is not known.
    :raises IncompatibleError: for a GPU that the kernels cannot run on.
    :raises NetworkError: when an upstream must be looked at and the network is not there.
    """
    profile = _profile(wish)
    architectures = choose_architectures(wish.arch or "native", host, oldest_gpu())
    leading = default_family()
    named = {leading.name: wish.upstream} if wish.upstream else {}
    sources = {family.name: named.get(family.name) or family.sources.default_version() for family in FAMILIES}
    known = {f.name: f.sources.identify(sources[f.name], depot.layout.upstreams) for f in FAMILIES}
    selection = select(profile, frozenset().union(*(source.units for source in known.values())))
    features = frozenset().union(*(source.features for source in known.values()))
    selection = Selection(selection.units, selection.features & features)
    cuda = wish.cuda or "auto"
    asked = Version.parse(cuda).major if cuda[:1].isdecimal() and "/" not in cuda else None
    request = Request(
        upstreams={family: known[family].id for family in selection.families},
        selection=selection,
        platform=host.platform,
        gpus=architectures.wanted,
        driver=host.driver,
        libc=host.libc,
        cuda_major=asked,
        c_layer=c_layer_digest(),
    )
    return Need(request, {family: sources[family] for family in selection.families}, cuda, architectures.note)


def published_sources(manifest: Manifest) -> dict[str, str]:
    """The names of the sources that a library was made from, as long as they are published ones."""
    return {family: upstream.version for family, upstream in manifest.upstreams.items()}


def _profile(wish: Wish) -> Profile:
    profile = parse_profile(wish.profile or DEFAULT_PROFILE)
    if wish.passes is not None:
        profile = replace(profile, passes=parse_passes(wish.passes))
    if wish.head_dims is not None:
        profile = replace(profile, head_dims=parse_head_dims(wish.head_dims))
    if wish.dtypes is not None:
        profile = replace(profile, dtypes=parse_dtypes(wish.dtypes))
    if wish.features is not None:
        profile = replace(profile, features=parse_features(wish.features))
    return profile


def from_depot(need: Need, depot: Depot) -> tuple[Result | None, Rejected]:
    """A stored library that satisfies a request, and why each other one that is stored does not."""
    started = time.monotonic()
    choice = depot.find(need.request)
    if choice.taken is None:
        return None, choice.rejected
    path = depot.materialise(choice.taken)
    units = len(need.request.selection.units)
    return Result("hit", choice.taken, path, 0, units, time.monotonic() - started), choice.rejected
