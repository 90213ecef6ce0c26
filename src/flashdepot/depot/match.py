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


def choose(request: Request, manifests: Iterable[Manifest], preferred_key: str | None = None) -> DepotChoice:
    """Choose among libraries, whatever order they come in.

    Of those that satisfy the request the one made by the preferred recipe wins, then the smallest.
    """
    fitting: list[Manifest] = []
    rejected: list[tuple[Manifest, tuple[str, ...]]] = []
    for manifest in manifests:
        if reasons := unmet(request, manifest):
            rejected.append((manifest, reasons))
        else:
            fitting.append(manifest)
    # Stable sorts, the weakest rule first: equal in all, the key decides, so that every run takes the same one.
    fitting.sort(key=lambda m: m.recipe_key)
    fitting.sort(key=lambda m: (m.recipe_key != preferred_key, m.size))
    rejected.sort(key=lambda pair: (len(pair[1]), pair[0].recipe_key))
    return DepotChoice(fitting[0] if fitting else None, tuple(rejected))
