"""Which stored library serves a request, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flashdepot.fit.requests import unmet
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request


class DepotChoice(msgspec.Struct, frozen=True):
    """What was taken, if anything, and each library that was not fit, with the reasons, nearest miss first."""

    taken: Manifest | None
    rejected: tuple[tuple[Manifest, tuple[str, ...]], ...]


def choose(request: Request, manifests: Iterable[Manifest]) -> DepotChoice:
    """Choose among libraries, given newest first: one with less code wins, and of two alike the newer.

    Newer is better made: by the same sources, it is linked by a newer flashdepot, or dispatches by newer measurements.
    """
    fitting: list[Manifest] = []
    rejected: list[tuple[Manifest, tuple[str, ...]]] = []
    for manifest in manifests:
        if reasons := unmet(request, manifest):
            rejected.append((manifest, reasons))
        else:
            fitting.append(manifest)
    rejected.sort(key=lambda pair: (len(pair[1]), pair[0].recipe_key))
    return DepotChoice(min(fitting, key=_code, default=None), tuple(rejected))


def _code(manifest: Manifest) -> int:
    """How much a library holds: its units, once for each architecture."""
    return len(manifest.selection.units) * len(manifest.sass)
