"""What a build will take, for whoever decides whether it begins."""

from __future__ import annotations

from typing import Any

from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli.common import answer, print_json
from flashdepot.model.architecture import spell
from flashdepot.model.quantities import size
from flashdepot.resolve.consent import sentence, smaller


def tell(plan: LibraryPlan, *, as_json: bool, then: str = "") -> None:
    """The answer of ``--dry-run``; ``then`` is what the command does with the library."""
    if as_json:
        print_json(to_json(plan))
    else:
        answer("\n".join(filter(None, [describe(plan), then])))


def describe(plan: LibraryPlan) -> str:
    """What ``--dry-run`` says of a library."""
    if (found := plan.stored or plan.offered) is not None:
        place = "the depot, at once" if plan.stored else f"a remote, {size(found.size)}"
        key = found.recipe_key[:12]
        return f"From {place}: {key}, {found.selection}; machine code for {spell(found.sass)}."
    assert plan.forecast is not None  # noqa: S101  (one of the two is there)
    return "\n".join([sentence(plan.forecast), *smaller(plan.forecast)])


def to_json(plan: LibraryPlan) -> dict[str, Any]:
    """The same for ``--json``; sizes in bytes, times in seconds."""
    if plan.stored is not None:
        return {"status": "hit", "recipe_key": plan.stored.recipe_key}
    if plan.offered is not None:
        return {"status": "offered", "recipe_key": plan.offered.recipe_key, "size": plan.offered.size}
    assert plan.forecast is not None  # noqa: S101  (one of the two is there)
    found = plan.forecast
    return {
        "status": "planned",
        "units": {"total": found.units, "compiled": found.units - found.compiled, "reused": found.compiled},
        "host_sides": found.host_sides,
        "jobs": found.jobs,
        "seconds": round(found.seconds, 1),
        "memory": found.memory,
        "memory_limit": found.memory_limit,
        "disk": found.disk,
        "fetches": [{"what": fetch.what, "size": fetch.size} for fetch in found.fetches],
        "alternatives": [{"options": o.options, "seconds": round(o.seconds, 1)} for o in found.alternatives],
        "exact": found.is_exact,
    }
