"""What a build will take, for whoever decides whether it begins."""

from __future__ import annotations

from typing import Any

from flashdepot.api.libraries import LibraryPlan
from flashdepot.cli.common import answer, print_json
from flashdepot.events import Forecast
from flashdepot.model.architecture import spell
from flashdepot.model.quantities import duration, size


def sentence(forecast: Forecast) -> str:
    """All of it in one line."""
    left, around = forecast.units - forecast.compiled, forecast.host_sides
    takes = f"about {duration(forecast.seconds)} with {_compilers(forecast.jobs)}"
    if not left and not around:
        rest = (
            f"only the C layer is to be compiled, and linked; {takes}" if forecast.seconds else "only linking is left"
        )
        return f"All {forecast.units} kernels are compiled already: {rest}."
    parts = [f"To compile: {left} kernels"]
    if not left:
        known = f"The device code of all {forecast.units} kernels is compiled already"
        parts = [f"{known}. To compile: the host side of {around}, and the C layer"]
    elif around:
        parts.append(
            f"the device code of {forecast.compiled} more is compiled already, the host side of {around} of them is not"
        )
    elif forecast.compiled:
        parts.append(f"{forecast.compiled} more are compiled already")
    parts.append(takes)
    beyond = f", more than the {size(forecast.memory_limit)} that may be used: one compiler takes it alone"
    too_much = beyond if forecast.memory > forecast.memory_limit else ""
    parts += [f"up to {size(forecast.memory)} of memory{too_much}", f"{size(forecast.disk)} of disk"]
    if forecast.fetches:
        what = ", ".join(f"{fetch.what} {size(fetch.size)}" for fetch in forecast.fetches)
        parts.append(f"and first to fetch {size(sum(fetch.size for fetch in forecast.fetches))} ({what})")
    return f"{'; '.join(parts)}."


def alternatives(forecast: Forecast) -> list[str]:
    """What takes less time, a line each."""
    width = max((len(other.options) for other in forecast.alternatives), default=0)
    return [f"  {other.options:<{width}}  about {duration(other.seconds)}" for other in forecast.alternatives]


def question(forecast: Forecast) -> str:
    """The sentence, what takes less, and the question."""
    less = ["Less takes less time:", *alternatives(forecast)] if forecast.alternatives else []
    return "\n".join([sentence(forecast), *less, "It can be stopped and resumed at any time. Compile it now?"])


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
    less = ["Less takes less time:", *alternatives(plan.forecast)] if plan.forecast.alternatives else []
    return "\n".join([sentence(plan.forecast), *less])


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


def _compilers(jobs: int) -> str:
    return "one compiler" if jobs == 1 else f"{jobs} compilers at a time"
