"""``flashdepot install``."""

from __future__ import annotations

from pathlib import Path

import click

from flashdepot import api
from flashdepot.api.environments import InstallPlan, InstallResult, inspect_planned, plan_install
from flashdepot.cli import options as o
from flashdepot.cli.common import (
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
from flashdepot.cli.library_commands import describe_plan
from flashdepot.cli.resolving import sources_named
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import UsageError, did_you_mean
from flashdepot.install.choice import InstallRequest
from flashdepot.install.present import advice
from flashdepot.install.sources import WheelAddress, WheelFile
from flashdepot.model.candidate import COMMUNITY, INDEX, OFFICIAL, OURS
from flashdepot.model.limits import Limits, duration, size
from flashdepot.resolve.lock import LOCK_NAME
from flashdepot.wheel import parse_names


@click.command(
    epilog=examples(
        "flashdepot install",
        "flashdepot install --source ours --python .venv/bin/python --profile training",
        "flashdepot install --wheel flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --dry-run",
    )
)
@options(
    click.option(
        "--python",
        metavar="PY",
        help="Interpreter or folder of the environment.  [default: the active one, or the nearest .venv]",
    ),
    click.option(
        "--source",
        "sources",
        metavar="SOURCE",
        multiple=True,
        help="Whose wheel: ours, official, community, or index:URL, an index that 'flashdepot index' wrote (repeatable).  "
        "[default: ours and official]",
    ),
    click.option("--wheel", "named", metavar="FILE|URL", help="Install exactly this wheel."),
    click.option("--sha256", metavar="DIGEST", help="The digest that --wheel must have."),
    click.option("--locked", is_flag=True, help=f"Install what {LOCK_NAME} in this folder pins."),
    click.option(
        "--accept-unverified",
        is_flag=True,
        help=f"Accept a wheel that has no known digest, and record its digest in {LOCK_NAME}.",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would be done without changing anything."),
    o.names_option,
    o.selection_options,
    o.build_options,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def install(
    python: str | None,
    sources: tuple[str, ...],
    named: str | None,
    sha256: str | None,
    names: str,
    limits: Limits,
    depot: Path | None,
    *,
    locked: bool,
    accept_unverified: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Install flash-attn into a Python environment that has torch, and check that it works there.

    By default it takes the best of the depot's libraries and the official wheels, as 'flashdepot resolve' does.

    The wheel is checked before anything changes. Then it is imported in a fresh process and, if there is a GPU, its
    results are compared with float64. If anything fails, the environment is restored.
    """
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json)
    opened = open_depot(depot)
    request = InstallRequest(
        library=o.with_project(words),
        sources=_sources(sources),
        wheel=named,
        sha256=sha256,
        locked=Path.cwd() / LOCK_NAME if locked else None,
    )
    beside = parse_names(names)
    if dry_run:
        plan = plan_install(request, python=python, depot=opened, limits=limits, events=events)
        inspect_planned(plan, events)
        if as_json:
            print_json(plan.to_json())
        else:
            _tell_plan(plan)
        return
    result = api.install(
        request,
        python=python,
        depot=opened,
        limits=limits,
        accept_unverified=accept_unverified,
        names=beside,
        events=events,
    )
    if result.pinned:
        events.note(result.pinned)
    if as_json:
        print_json(result.to_json())
    elif not quiet:
        _tell(result)


def _sources(named: tuple[str, ...]) -> frozenset[str]:
    known = (OURS, OFFICIAL, COMMUNITY)
    for source in named:
        if source not in known and not source.startswith(INDEX):
            raise UsageError(
                f"'{source}' is not a source: there are {', '.join(known)} and index:URL.{did_you_mean(source, known)}"
            )
    return frozenset(sources_named(named))


def _tell(result: InstallResult) -> None:
    done, wheel, environment = result.installed, result.wheel, result.plan.environment
    instead = f" instead of {done.replaced}" if done.replaced else ""
    say(
        f"flash-attn {done.imported.version}{instead} ({wheel.source}, {size(wheel.size)}), with {done.installer}, in "
        f"{environment.prefix}: imports with torch {done.imported.torch}; in {duration(result.seconds)}"
    )
    for name in result.names:
        say(f"  {name}: imports over it")
    if done.numbers.not_run:
        say(f"  Its numbers were not checked: {done.numbers.not_run}. 'flashdepot verify' does it later.")
    else:
        left_out = f", {done.numbers.skipped} not in this build" if done.numbers.skipped else ""
        say(f"  {done.numbers.right} results agree with float64 on {done.numbers.gpu}{left_out}")
    if result.plan.keeper is not None:
        say(f"  {advice(result.plan.keeper, result.plan.choice.reference)}")


def _tell_plan(plan: InstallPlan) -> None:
    say(f"Would install {_described(plan)}")
    say(f"  into {plan.environment.prefix}" + (f", instead of flash-attn {plan.replaces}" if plan.replaces else ""))
    if isinstance(wheel := plan.choice.wheel, WheelAddress):
        say(f"  {_digest(wheel)}")
    if plan.adds:
        say(f"  with {', '.join(plan.adds)}, from your index")
    say("  after checking its bytes, and import it there. Nothing was changed.")
    if plan.keeper is not None:
        say(f"  {advice(plan.keeper, plan.choice.reference)}")


def _digest(wheel: WheelAddress) -> str:
    if not wheel.sha256:
        return "no SHA-256 is published for it: install asks, or takes --accept-unverified"
    recorded = f", as {wheel.recorded_by} records" if wheel.recorded_by else ""
    return f"SHA-256 {wheel.sha256}{recorded}"


def _described(plan: InstallPlan) -> str:
    choice, wheel = plan.choice, plan.choice.wheel
    if isinstance(wheel, WheelFile):
        return f"{wheel.path} ({size(wheel.size)})"
    if isinstance(wheel, WheelAddress):
        return f"{wheel.shown} ({wheel.source}, {size(wheel.size) if wheel.size else 'size not known'}): {choice.why}"
    assert plan.library is not None  # noqa: S101  (for mypy: our wheel has one)
    return f"our wheel: {choice.why}.\n  {describe_plan(plan.library)}"
