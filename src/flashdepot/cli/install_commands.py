"""``flashdepot install``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flashdepot import api
from flashdepot.api.environments import InstallPlan, InstallResult, plan_install
from flashdepot.api.wheels import sources_named
from flashdepot.cli.common import command, depot_option, flag, option, options, python_option
from flashdepot.cli.library_commands import describe_plan
from flashdepot.cli.options import Wanted, build_options, names_option, selection_options
from flashdepot.cli.output import View
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.install.present import advice
from flashdepot.model.diagnosis import Command
from flashdepot.model.limits import Limits, duration, size
from flashdepot.model.wheel import OURS
from flashdepot.net.fetch import offline
from flashdepot.resolve.choice import InstallRequest
from flashdepot.resolve.lock import LOCK_NAME
from flashdepot.resolve.wheel_files import WheelAddress, WheelFile
from flashdepot.wheel import parse_names


@command(
    "flashdepot install",
    "flashdepot install --source ours --python .venv/bin/python --profile training",
    "flashdepot install --wheel flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --dry-run",
)
@options(
    python_option,
    option(
        "--source SOURCE  Whose wheel: ours, official, community, or index:URL, an index that 'flashdepot index' "
        "wrote (repeatable).  [default: ours and official]",
        to="sources",
        multiple=True,
    ),
    option("--wheel FILE|URL  Install exactly this wheel.", to="named"),
    option("--sha256 DIGEST  The digest that --wheel must have."),
    flag(f"--locked  Install what {LOCK_NAME} in this folder pins."),
    flag(f"--accept-unverified  Accept a wheel that has no known digest, and record its digest in {LOCK_NAME}."),
    flag("--dry-run  Show what would be done without changing anything."),
    names_option,
    selection_options,
    build_options,
    depot_option,
)
def install(
    python: str | None,
    sources: tuple[str, ...],
    named: str | None,
    sha256: str | None,
    names: str,
    wanted: Wanted,
    limits: Limits,
    depot: Depot,
    *,
    locked: bool,
    accept_unverified: bool,
    dry_run: bool,
) -> View:
    """Install flash-attn into a Python environment that has torch, and check that it works there.

    By default it takes the best of the depot's libraries and the official wheels, as 'flashdepot resolve' does.

    The wheel is checked before anything changes. Then it is imported in a fresh process and, if there is a GPU, its
    results are compared with float64. If anything fails, the environment is restored.
    """
    events = terminal()
    small = parse_names(names)
    request = InstallRequest(
        library=wanted.request,
        sources=sources_named(sources or ((OURS,) if small and not (named or locked) else ())),
        wheel=named,
        sha256=sha256,
        locked=Path.cwd() / LOCK_NAME if locked else None,
    )
    how: dict[str, Any] = {"python": python, "depot": depot, "limits": limits, "events": events}
    if dry_run:
        plan = plan_install(request, **how)
        return View(plan.to_json(), said=_plan_lines(plan))
    result = api.install(request, accept_unverified=accept_unverified, names=small, **how)
    if result.pinned:
        events.note(result.pinned)
    return View(result.to_json(), said=_lines(result, python))


def _lines(result: InstallResult, python: str | None) -> Iterator[str]:
    done, wheel, environment = result.installed, result.wheel, result.plan.environment
    instead = f" instead of {done.replaced}" if done.replaced else ""
    how = f", with {done.installer}" if done.installer else " is there already"
    yield (
        f"flash-attn {done.imported.version}{instead} ({wheel.source}, {size(wheel.size)}){how}, in "
        f"{environment.prefix}: imports with torch {done.imported.torch}; in {duration(result.seconds)}"
    )
    yield from (f"  {name}: imports over it" for name in result.names)
    if done.numbers.not_run:
        later = Command("verify", {"python": python})
        yield f"  Its numbers were not checked: {done.numbers.not_run}. Later: {later}"
    else:
        left_out = f", {done.numbers.skipped} not in this build" if done.numbers.skipped else ""
        yield f"  {done.numbers.right} results agree with float64 on {done.numbers.gpu}{left_out}"
    if result.plan.keeper is not None:
        yield f"  {advice(result.plan.keeper, result.plan.choice.reference)}"


def _plan_lines(plan: InstallPlan) -> Iterator[str]:
    yield f"Would install {_described(plan)}"
    yield f"  into {plan.environment.prefix}" + (f", instead of flash-attn {plan.replaces}" if plan.replaces else "")
    if isinstance(wheel := plan.choice.wheel, WheelAddress):
        yield f"  {_digest(wheel)}"
    if plan.adds:
        yield f"  with {', '.join(plan.adds)}, from your index{', which needs the network' if offline() else ''}"
    yield "  Its bytes are checked before, and it is imported there afterwards. Nothing was changed."
    if plan.keeper is not None:
        yield f"  {advice(plan.keeper, plan.choice.reference)}"


def _digest(wheel: WheelAddress) -> str:
    if not wheel.sha256:
        return "no SHA-256 of it is known: install asks, or takes --accept-unverified"
    recorded = f", as {wheel.recorded_by} records" if wheel.recorded_by else ""
    return f"SHA-256 {wheel.sha256}{recorded}"


def _described(plan: InstallPlan) -> str:
    choice, wheel = plan.choice, plan.choice.wheel
    if isinstance(wheel, WheelFile):
        return f"{wheel.path} ({size(wheel.size)})"
    if isinstance(wheel, WheelAddress):
        return f"{wheel.shown} ({wheel.source}, {size(wheel.size) if wheel.size else 'size not known'}): {choice.why}"
    assert plan.library is not None  # noqa: S101  (for mypy: our wheel has one)
    found = describe_plan(plan.library).replace("\n", "\n  ")
    return f"our wheel: {choice.why}.\n  {found}"
