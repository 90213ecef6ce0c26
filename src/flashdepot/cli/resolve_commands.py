"""``flashdepot resolve`` and ``flashdepot lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashdepot.api import wheels as api
from flashdepot.api.wheels import LockState, Question
from flashdepot.cli.common import (
    View,
    command,
    depot_option,
    flag,
    is_quiet,
    named_depot,
    option,
    options,
    path_option,
    say,
)
from flashdepot.cli.options import Wanted, environment_options, names_option
from flashdepot.cli.resolve_page import describe, describe_explained
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.model.candidate import Plan
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.wheel import COMMUNITY, FLASH_ATTN, OURS
from flashdepot.resolve.decide import NOT_LISTED, explain
from flashdepot.resolve.lock import LOCK_NAME, Lock
from flashdepot.resolve.plan import helps

EXIT_CODES = {
    Verdict.FITS: 0,
    Verdict.UNCERTAIN: MissingToolError.exit_code,
    Verdict.MISFIT: IncompatibleError.exit_code,
}
"""What a verdict comes to as the end of a command."""

_STATUS = {0: "decided", MissingToolError.exit_code: "facts missing", IncompatibleError.exit_code: "nothing fits"}

choice_options = options(
    option("--version 2.8.3  flash-attn version: 2.8.3, 2.8, '>=2.7,<2.8'.  [default: the newest]"),
    option("--distribution NAME  Package name; the other one is flash-attn-3.", default=FLASH_ATTN, show_default=True),
    option(
        "--source SOURCE  Only from these: ours, official, community, community:NAME, pip, index:URL "
        "(repeatable).  [default: ours, official]",
        to="sources",
        multiple=True,
    ),
    option(
        "--allow  Also take community wheels, or wheels that may not fit (repeatable).",
        type=click.Choice([COMMUNITY, "uncertain"]),
        multiple=True,
    ),
    option("--profile NAME  What our library must contain, as for 'flashdepot get'."),
    option("--bandwidth 12MB  Download speed in bytes per second.  [default: 12.5MB]"),
)


def answered(depot: Depot, asked: dict[str, Any]) -> tuple[Question, Plan]:
    """The question that the options of an environment and of a choice ask, and its answer."""
    question = Question(**asked, depot=named_depot())
    return question, question.ask(Wanted({"profile": question.profile}).request, depot, terminal())


@command(
    "flashdepot resolve --python .venv",
    "flashdepot resolve --torch 2.8.0+cu128 --python-tag cp312 --glibc 2.35 --gpu 9.0 --gpu 12.0 --driver 570",
    "flashdepot resolve --host node.json --allow community --json",
    "flashdepot resolve --explain flash_attn-2.7.2+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
)
@options(
    environment_options,
    choice_options,
    option("--explain WHEEL|VERSION  Say why this wheel was chosen, or why it was not.", to="named"),
    depot_option,
)
def resolve(named: str | None, depot: Depot, **asked: Any) -> View:
    """Choose the best of all published wheels, the depot's libraries and what could be built, and say why.

    Facts that you do not give come from this machine and the active Python environment, or from --host FILE.

    Exit status: 0 something fits, 3 a fact is missing, 4 nothing fits.
    """
    question, plan = answered(depot, asked)
    if named is not None:
        return _explained(plan, named)
    is_good = plan.chosen is not None and not plan.chosen.candidate.origin.compiles
    helped = () if is_good else helps(plan)
    commands = [str(question.with_help(one)) for one in helped]
    take = [question.taking(plan)] if plan.chosen else []
    code = exit_code(plan)
    document = {
        "status": _STATUS[code],
        "exit_code": code,
        **plan.to_json(),
        **({"command": take[0]} if take else {}),
        "helps": [
            {"command": command, "fitting": one.fitting, "first": one.first.candidate.name}
            for one, command in zip(helped, commands, strict=True)
        ],
    }
    if is_quiet() and plan.chosen:
        return View(document, [plan.chosen.candidate.name], status=code)
    page = describe(plan, list(zip(helped, commands, strict=True)))
    last = take or question.telling(plan) or commands
    return View(document, [page, *(f"\n  {command}" for command in last[:1])], status=code)


def exit_code(plan: Plan) -> int:
    """0 for a choice, that of a missing fact, or that of nothing compatible."""
    if plan.chosen is not None:
        return 0
    return MissingToolError.exit_code if plan.missing else IncompatibleError.exit_code


def _explained(plan: Plan, named: str) -> View:
    found = explain(plan, named)
    if found[0].candidate.wheel.source == NOT_LISTED:
        say(f"{named} is not in the catalog, so only its name is judged.")
    document = {"named": named, "found": [judged.to_json() for judged in found]}
    page = describe_explained(named, found, plan)
    return View(document, [page], status=EXIT_CODES[found[0].verdict])


@command(
    "flashdepot lock --python .venv",
    "flashdepot lock --host node.json --out deploy/flashdepot.lock",
    "flashdepot lock --names flash-attn-3",
    "flashdepot lock --check",
    "flashdepot lock --upgrade --allow community --accept-unverified",
)
@options(
    environment_options,
    choice_options,
    path_option("--out FILE  The lock file.", default=LOCK_NAME, show_default=True),
    names_option,
    flag("--check  Check whether the lock still fits; write nothing."),
    flag("--upgrade  Choose again even if the lock still fits."),
    flag("--accept-unverified  Lock a wheel that has no known SHA-256; its first installation records it."),
    depot_option,
)
def lock(
    out: Path, names: str, depot: Depot, *, check: bool, upgrade: bool, accept_unverified: bool, **asked: Any
) -> View:
    """Pin what 'flashdepot resolve' chooses, by address and SHA-256, in flashdepot.lock.

    A lock that still fits is kept; --upgrade chooses again.

    Exit status: 0 locked, or still fits; 2 the file cannot be used; 3 a fact is missing; 4 nothing fits, or the lock
    does not; 6 the digest is not known.
    """
    from flashdepot.wheel import parse_names  # noqa: PLC0415  (resolve does without)

    if check and upgrade:
        raise UsageError("--check writes nothing, --upgrade writes again: give one of them.")
    beside = parse_names(names)
    if beside and not asked["sources"]:
        asked["sources"] = (OURS,)  # the names need it
    _, plan = answered(depot, asked)
    if check or (out.exists() and not upgrade):
        state = api.check_lock(plan.request, out, beside)
        text, code = _described(state, out), EXIT_CODES[state.verdict]
        if check or code == 0:
            text += "\n  -> or choose again: flashdepot lock --upgrade" if code else ""
            return _pinned("does not fit" if code else "fits", state.lock, out, text, code)
        say(f"{text}\nChoosing another.")
    locked = api.lock(plan, out, accept_unverified=accept_unverified, names=beside or None)
    if locked is None:
        return View(plan.to_json(), [describe(plan)], status=exit_code(plan))
    note = f"\n{_NO_DIGEST}" if locked.locked.needs_digest else ""
    pinned = ", ".join([locked.locked.filename, *(name.filename for name in locked.names)])
    return _pinned("locked", locked, out, f"{out}: locked {pinned}{note}")


_NO_DIGEST = "  its SHA-256 is not known yet; the first 'flashdepot install' of this lock records it"


def _described(state: LockState, path: Path) -> str:
    fits = "fits" if state.verdict is Verdict.FITS else state.verdict
    lines = [f"{path}: {state.lock.locked.filename} {fits}"]
    for reason in state.reasons:
        lines += [f"  {reason.text}", f"  -> {reason.fix}"]
    if state.lock.locked.needs_digest:
        lines.append(_NO_DIGEST)
    return "\n".join(lines)


def _pinned(status: str, lock: Lock, path: Path, text: str, code: int = 0) -> View:
    said = [] if is_quiet() and not code else [text]
    return View({"status": status, "path": str(path), **lock.to_toml()}, said, status=code)
