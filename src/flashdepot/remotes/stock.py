"""All that a remote has: the records of every source and platform that this flashdepot knows. Nothing is listed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flashdepot.families import FAMILIES
from flashdepot.families.c_layer import c_layer_digest
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.upstream import UpstreamId
from flashdepot.remotes.remote import OpenRemote, SignedLibrary
from flashdepot.remotes.statements import library_places, shelf_place
from flashdepot.targets import TARGETS


def stock(remote: OpenRemote, known: Iterable[Manifest]) -> list[SignedLibrary]:
    """The libraries of a remote that are believed, of published sources and of those of some known libraries.

    A recipe of which there are several libraries is there several times; a library is there once.

    :raises NetworkError: when the remote fails or is too slow.
    """
    found = remote.stock(sorted({*_places(known)}))
    libraries = {(lib.statement.summary.recipe_key, lib.statement.manifest_digest): lib for lib in found}
    return [library for _, library in sorted(libraries.items()) if library.statement.summary.kind == LIBRARY]


def _places(known: Iterable[Manifest]) -> Iterator[str]:
    manifests = list(known)
    for manifest in manifests:
        # The last one is that of the recipe alone, which is on a shelf as well.
        yield from library_places(manifest)[:-1]
    sources = [*_published(), *(source for manifest in manifests for source in manifest.upstreams.items())]
    for (family, upstream), row in ((source, row) for source in sources for row in TARGETS):
        yield shelf_place(family, upstream, row.platform, c_layer_digest())


def _published() -> Iterator[tuple[str, UpstreamId]]:
    for family in FAMILIES:
        for version in family.sources.known_versions():
            yield family.name, family.sources.find_sdist(version).identified.id
