"""The depot itself: the library that a key names, and freeing what is not needed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from flashdepot.depot import Depot, StoredArtifact
from flashdepot.depot.gc import GcPlan, plan, run
from flashdepot.errors import UsageError


def stored(key: str, *, depot: Depot) -> StoredArtifact:
    """The stored library whose key begins so; :raises UsageError: when there is none, or several."""
    found = [a for a in depot.artifacts.by_last_use() if a.manifest.recipe_key.startswith(key)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} stored libraries have keys that begin with" if found else "no stored library has the key"
    raise UsageError(f"'{key}': {problem} {key}.", hint="'flashdepot depot ls' lists them.")


def plan_gc(*, days: int = 30, remove: Iterable[str] = (), depot: Depot) -> GcPlan:
    """What :func:`free` would free: what no library needs, and nobody has used for so many days or the last hour.

    :param remove: keys of libraries that are forgotten first.
    :raises UsageError: for a key that names none, or several.
    """
    forget = frozenset(stored(key, depot=depot).manifest.recipe_key for key in remove)
    return plan(depot, dt.timedelta(days=days), forget=forget)


def plan_clean(*, libraries: bool = False, depot: Depot) -> GcPlan:
    """What :func:`free` would free: all but the libraries, or all; what a running command uses stays."""
    forget = frozenset(manifest.recipe_key for manifest in depot.artifacts.manifests()) if libraries else frozenset()
    return plan(depot, dt.timedelta(0), grace=0, forget=forget)


def free(planned: GcPlan, *, depot: Depot) -> GcPlan:
    """Free what was planned, as far as it is still not needed; what was freed."""
    return run(depot, planned)
