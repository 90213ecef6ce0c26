"""What a build will take, for whoever decides whether it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from flashdepot import api
from flashdepot.api.acquire import LibraryPlan
from flashdepot.api.libraries import plan_library
from flashdepot.cli import options as o
from flashdepot.cli.common import (
    answer,
    depot_option,
    examples,
    json_option,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    verbose_option,
)
from flashdepot.cli.options import machine_options
from flashdepot.cli.terminal import Terminal
from flashdepot.kernels import oldest_gpu, proven_families
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits, duration, size
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.target import spell
from flashdepot.resolve.consent import sentence, smaller
from flashdepot.resolve.library import LibraryResult


def show_plan(plan: LibraryPlan, *, as_json: bool, then: str = "") -> None:
    """The answer of ``--dry-run``; ``then`` is what the command does with the library."""
    if as_json:
        print_json(plan_document(plan))
    else:
        answer("\n".join(filter(None, [describe_plan(plan), then])))


def describe_plan(plan: LibraryPlan) -> str:
    """What ``--dry-run`` says of a library."""
    if (found := plan.stored or plan.offered) is not None:
        place = "the depot, at once" if plan.stored else f"a remote, {size(found.size)}"
        key = found.recipe_key[:12]
        return f"From {place}: {key}, {found.selection}; machine code for {spell(found.sass)}."
    assert plan.forecast is not None  # noqa: S101  (one of the two is there)
    return "\n".join([sentence(plan.forecast), *smaller(plan.forecast)])


def plan_document(plan: LibraryPlan) -> dict[str, Any]:
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


_shared_options = options(
    o.selection_options,
    o.out_option,
    o.build_options,
    o.dry_run_option,
    machine_options,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)


@click.command(
    epilog=examples(
        "flashdepot get --profile quick",
        "flashdepot get --profile inference --arch 80,90 --out vendor/flashattention",
        "flashdepot get --upstream 2.7.4.post1 --passes fwd,bwd --head-dims 64,128 --dtypes bf16",
    )
)
@_shared_options
def get(
    out: Path | None,
    limits: Limits,
    host: HostRecord | None,
    depot: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Get a library from the depot or a remote, or build it once from the published source.

    Prints the library's folder. Defaults come from the nearest flashdepot.toml in this folder or above it.
    """
    if words["arch"] == "list":
        _list_architectures(as_json=as_json)
        return
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json)
    request, opened = o.with_project(words), open_depot(depot)
    if dry_run:
        _foretell(plan_library(request, host=host, depot=opened, limits=limits, events=events), as_json=as_json)
        return
    result = api.get(request, host=host, depot=opened, out=out, limits=limits, events=events)
    tell(result, as_json=as_json, quiet=quiet)


@click.command(
    epilog=examples(
        "flashdepot build --profile full --arch universal",
        "flashdepot build --upstream ~/flash-attention --profile quick --keep-going",
    )
)
@_shared_options
@options(o.keep_going_option, o.front_end_option, o.compress_option)
def build(
    out: Path | None,
    limits: Limits,
    host: HostRecord | None,
    depot: Path | None,
    front_end: str,
    compress_mode: str | None,
    *,
    keep_going: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Build a library with this machine's toolchain, whatever else the depot has.

    Units that were compiled before are reused, and a build that was stopped resumes.
    """
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit of 'get' needs none of it)

    if words["arch"] == "list":
        _list_architectures(as_json=as_json)
        return
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json)
    request, opened = o.with_project(words), open_depot(depot)
    limits, how = replace(limits, keep_going=keep_going), Options(front_end, compress_mode or "")
    if dry_run:
        plan = plan_library(request, exactly=True, host=host, depot=opened, limits=limits, options=how, events=events)
        _foretell(plan, as_json=as_json)
        return
    result = api.build(request, host=host, depot=opened, out=out, limits=limits, options=how, events=events)
    tell(result, as_json=as_json, quiet=quiet)


def _foretell(plan: LibraryPlan, *, as_json: bool) -> None:

    show_plan(plan, as_json=as_json)


def tell(result: LibraryResult, *, as_json: bool, quiet: bool) -> None:
    """Print what a command got."""
    if as_json:
        print_json(
            {
                "status": result.status,
                "recipe_key": result.manifest.recipe_key,
                "path": str(result.path),
                "manifest": str(result.path / MANIFEST_NAME),
                "units": {
                    "total": result.compiled + result.reused,
                    "compiled": result.compiled,
                    "reused": result.reused,
                },
                "seconds": round(result.seconds, 3),
                **({"workers": dict(result.workers)} if result.workers else {}),
            }
        )
        return
    if not quiet:
        say(describe(result))
    answer(str(result.path))


def describe(result: LibraryResult) -> str:
    """What was got, what it needs, and how it came, a line each."""
    manifest = result.manifest
    came = {
        "hit": "from the depot",
        "fetched": "from a remote",
        "built": f"built: {result.compiled} units compiled, {result.reused} reused{_where(result)}",
    }
    floors = [f"NVIDIA driver {manifest.driver_floor}"]
    if manifest.libc_floor:
        floors.append(f"GNU libc {manifest.libc_floor}")
    return "\n".join(
        [
            f"flash-attn {manifest.upstream}: {manifest.selection}",
            f"machine code for {spell(manifest.sass)}; needs {' and '.join(floors)} or newer; {size(manifest.size)}",
            f"{came[result.status]}, in {duration(result.seconds)}",
            *_more_for_hopper(result),
        ]
    )


def _more_for_hopper(result: LibraryResult) -> list[str]:
    """What a new library for Hopper could have besides, which nobody asks for who has not heard of it."""
    made = result.manifest
    others = {family.name for family in proven_families(made.sass, made.platform)} - {DEFAULT_FAMILY}
    if result.status != "built" or others <= set(made.selection.families):
        return []
    return [
        "for Hopper there are FlashAttention-4's kernels as well, about twice as fast: --families all   # docs/fa4.md"
    ]


def _where(result: LibraryResult) -> str:
    return f", on {len(result.workers)} workers" if result.workers else ""


def _list_architectures(*, as_json: bool) -> None:
    from flashdepot.facts.gpus import known_architectures, universal_architectures  # noqa: PLC0415

    known = [k for k in known_architectures() if k.architecture >= oldest_gpu()]
    if as_json:
        print_json(
            [
                {
                    "arch": str(k.architecture),
                    "gpus": k.gpus,
                    "first_cuda": str(k.first_cuda),
                    "last_cuda": str(k.last_cuda) if k.last_cuda else None,
                }
                for k in known
            ]
        )
        return
    for k in known:
        cuda = f"CUDA {k.first_cuda}" + (f" to {k.last_cuda}" if k.last_cuda else " and newer")
        answer(f"{k.architecture!s:<5} {k.gpus:<45} {cuda}")
    answer(f"\nuniversal = {spell(universal_architectures())}; native = those of this machine's GPUs")
