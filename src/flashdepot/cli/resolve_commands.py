"""``flashdepot resolve`` and ``flashdepot lock``, and a plan as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from flashdepot.api import wheels as api
from flashdepot.api.wheels import Question
from flashdepot.cli.common import command, depot_option, flag, named_depot, option, options, path_option
from flashdepot.cli.options import Wanted, environment_options, names_option
from flashdepot.cli.output import View, is_quiet, say
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import Candidate, Judged, Origin, Plan
from flashdepot.model.diagnosis import Reasons, Verdict, verdict_of
from flashdepot.model.environment import NO_TORCH, Environment
from flashdepot.model.limits import counted, duration, size
from flashdepot.model.wheel import COMMUNITY, FLASH_ATTN, OURS
from flashdepot.resolve.decide import NOT_LISTED, explain, why_before
from flashdepot.resolve.lock import LOCK_NAME, Lock
from flashdepot.resolve.plan import Help, helps
from flashdepot.resolve.rules import RULES

EXIT_CODES = {
    Verdict.FITS: 0,
    Verdict.UNCERTAIN: MissingToolError.exit_code,
    Verdict.MISFIT: IncompatibleError.exit_code,
}
"""The exit code of a command, by verdict."""

_STATUS = {0: "decided", MissingToolError.exit_code: "facts missing", IncompatibleError.exit_code: "nothing fits"}

choice_options = options(
    option("--version 2.8.3  flash-attn version: 2.8.3, 2.8, '>=2.7,<2.8'.  [default: the newest]"),
    option("--distribution NAME  Package name; the other one is flash-attn-3.", default=FLASH_ATTN, show_default=True),
    option(
        "--source SOURCE  Only from these: ours, official, community, community:NAME, index:URL "
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

    Exit code: 0 something fits, 3 a fact is missing, 4 nothing fits.
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
    return View(document, [page, *_last(take or question.telling(plan) or commands)], status=code)


def _last(commands: Sequence[str]) -> list[str]:
    """The first of some commands as an answer ends in it; nothing without one."""
    return [f"\n  {command}" for command in commands[:1]]


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

    Exit code: 0 locked, or still fits; 2 the file cannot be used; 3 a fact is missing; 4 nothing fits, or the lock
    does not; 6 the digest is not known.
    """
    from flashdepot.wheel import parse_names  # noqa: PLC0415  (resolve does without)

    if check and upgrade:
        raise UsageError("--check writes nothing, --upgrade writes again: give one of them.")
    small = parse_names(names)
    if small and not asked["sources"]:
        asked["sources"] = (OURS,)  # the names need it
    question, plan = answered(depot, asked)
    if check or (out.exists() and not upgrade):
        found, reasons = api.check_lock(plan.request, out, small)
        text, code = _described(found, reasons, out), EXIT_CODES[verdict_of(reasons)]
        if check or code == 0:
            again = {"out": out if out != Path(LOCK_NAME) else None, "names": names, "upgrade": True}
            text += f"\n  -> or choose again: {question.command('lock').but(**again)}" if code else ""
            return _pinned("does not fit" if code else "fits", found, out, text, code)
        say(f"{text}\nChoosing another.")
    try:
        locked = api.lock(plan, out, accept_unverified=accept_unverified, names=small or None)
    except IncompatibleError as error:
        first = plan.chosen is not None and plan.chosen.candidate.origin.compiles
        raise IncompatibleError(error.message, hint=question.taking(plan) if first else error.hint) from error
    if locked is None:
        code = exit_code(plan)
        document = {"status": _STATUS[code], "exit_code": code, **plan.to_json()}
        return View(document, [describe(plan), *_last(question.telling(plan, "lock"))], status=code)
    note = f"\n{_NO_DIGEST}" if locked.needs_digest else ""
    pinned = ", ".join([locked.wheel.filename, *(name.filename for name in locked.names)])
    return _pinned("locked", locked, out, f"{out}: locked {pinned}{note}")


_NO_DIGEST = "  its SHA-256 is not known yet; the first 'flashdepot install' of this lock records it"


def _described(lock: Lock, reasons: Reasons, path: Path) -> str:
    lines = [f"{path}: {lock.wheel.filename} {verdict_of(reasons)}"]
    lines += [line.removeprefix(_INDENT[2:]) for line in _reasons(reasons)]
    if reasons:
        lines.append(f"  It was locked {describe_facts(lock.facts.environment()).replace('For', 'for', 1)}")
    if lock.needs_digest:
        lines.append(_NO_DIGEST)
    return "\n".join(lines)


def _pinned(status: str, lock: Lock, path: Path, text: str, code: int = 0) -> View:
    said = [] if is_quiet() and not code else [text]
    return View({"status": status, "path": str(path), **lock.to_toml()}, said, status=code)


_EXPLAINED = 3
_INDENT = " " * 13

_RULED_OUT = {
    "distribution": "another distribution",
    "version": "another version of it",
    "platform": "for another platform",
    "torch-with-cuda": "need a PyTorch that works with CUDA here",
    "torch": "for another torch",
    "torch-preview": "built before that torch was released",
    "cuda": "for another CUDA major version",
    "cxx11-abi": "of the other C++ ABI",
    "python": "for another Python",
    "libc": "need a newer C library",
    "gpu": "for newer GPUs",
    "sass": "no machine code for a GPU here",
    "driver": "need a newer driver",
    "source": "from sources that are not allowed, but otherwise fit",
}
"""What a :class:`Rejection` says of its wheels, by the rule that they break."""


def describe(plan: Plan, commands: Sequence[tuple[Help, str]] = ()) -> str:
    """The facts, the decision and what comes next, then what was ruled out, by what.

    :param commands: what would give a better answer.
    """
    lines = [describe_facts(plan.facts), ""]
    if plan.fatal is not None:
        return "\n".join([*lines, f"  {plan.fatal.text}", f"  {plan.fatal.fix}"])
    lines += _decided(plan) if plan.chosen else _undecided(plan)
    if commands:
        lines += ["", "  What would help:"]
        for helped, command in commands:
            lines += [f"    {counted(helped.fitting, 'candidate')} would fit, {helped.first.candidate.name} first,"]
            lines += [f"    {_cost(helped.first.candidate)}:", f"      {command}"]
    if plan.rejections:
        lines += ["", *_counts(plan)]
    return "\n".join(lines)


def describe_facts(facts: Environment) -> str:
    """What it must run on, in a line; what is not known is named as such."""
    libc = f"glibc {facts.libc}" if facts.libc else facts.libc_name
    is_linux = facts.platform is not None and facts.platform.system == "linux"
    parts = [
        f"{facts.platform or 'platform not known'}" + (f" with {libc or 'a C library not known'}" if is_linux else ""),
        f"Python {facts.python}" if facts.python else "Python not known",
        _torch(facts),
        f"GPU {', '.join(gpu.dotted for gpu in facts.gpus)}" if facts.gpus else "GPU not known",
        f"driver {facts.driver}" if facts.driver else "driver not known",
    ]
    old = [gpu.dotted for gpu in facts.gpus if gpu not in facts.served(oldest_gpu())]
    note = f" Left out, too old for the kernels: {', '.join(old)}." if old else ""
    return f"For {'; '.join(parts)}.{note}"


def _torch(facts: Environment) -> str:
    torch = facts.torch
    if torch is None or torch == NO_TORCH:
        return "torch not known" if torch is None else "no torch"
    abi = {True: ", new C++ ABI", False: ", old C++ ABI", None: ""}[torch.cxx11_abi]
    implied = " (its default; --torch-cuda names another)" if "PyPI" in facts.origin_of("cuda") else ""
    cuda = (
        f" with CUDA {torch.cuda}{implied}" if torch.cuda else f" for {torch.accelerator}" if torch.accelerator else ""
    )
    return f"torch {torch.version}{cuda}{abi}"


def _decided(plan: Plan) -> Iterator[str]:
    chosen, second = plan.chosen, plan.runner_up
    assert chosen is not None  # noqa: S101  (for mypy)
    yield f"  take       {chosen.candidate.name}"
    yield from (f"{_INDENT}{line}" for line in (chosen.candidate.wheel.url, *_about(chosen, plan.facts)) if line)
    if second is not None:
        yield f"\n  runner-up  {second.candidate.name}"
        yield from (f"{_INDENT}{line}" for line in _about(second, plan.facts))
        if why := why_before(chosen, second, plan.facts):
            yield f"{_INDENT}comes second: {why}"
    for judged in plan.misfits:
        yield f"\n  not        {judged.candidate.name}: {judged.broken[0].text}"
        yield f"{_INDENT}-> {judged.broken[0].fix}"


def _undecided(plan: Plan) -> Iterator[str]:
    if plan.missing:
        yield "  A fact is missing. Give it (the values here are examples), or name the Python environment that the wheel is for:"
        yield from (f"    {option}" for option in plan.missing)
        return
    yield "  Nothing that may be taken certainly works there."
    for judged in plan.misfits:
        yield f"\n  {judged.candidate.name}: {judged.verdict}"
        yield from _reasons(judged.broken)
    if plan.uncertain:
        best = plan.uncertain[0]
        yield f"\n  most likely  {best.candidate.name}"
        yield from _reasons(best.reasons)


def _about(judged: Judged, facts: Environment) -> Iterator[str]:
    candidate = judged.candidate
    yield f"{_source(candidate)}; {_cost(candidate)}"
    if judged.verdict is Verdict.FITS:
        yield _fits(candidate, facts)
    if candidate.origin in {Origin.OFFICIAL, Origin.COMMUNITY} and not judged.verified:
        yield "its release should have it, but nobody has checked that the file exists"
    yield from (line.strip() for line in _reasons(judged.reasons))


def _source(candidate: Candidate) -> str:
    return {
        Origin.DEPOT: "ours, from the depot",
        Origin.REMOTE: "ours, from a remote",
        Origin.OURS: "ours, compiled here",
        Origin.INDEX: f"ours, from {candidate.wheel.source}",
        Origin.OFFICIAL: "official",
        Origin.COMMUNITY: f"community: {candidate.wheel.source}",
    }[candidate.origin]


def _cost(candidate: Candidate) -> str:
    fetched = f"{'' if candidate.size_known else 'about '}{size(candidate.size)}, " if candidate.size else ""
    return f"{fetched}about {duration(candidate.seconds)} until it can be imported"


def _fits(candidate: Candidate, facts: Environment) -> str:
    wheel = candidate.wheel
    code = f"machine code for {','.join(wheel.sass)}" if wheel.sass else ""
    if candidate.origin in {Origin.DEPOT, Origin.REMOTE, Origin.OURS, Origin.INDEX}:
        return f"works with every torch and Python; CUDA {wheel.cuda}; {code}"
    abi = "" if facts.torch is None or facts.torch.cxx11_abi is None else ", its C++ ABI"
    return f"fits torch {wheel.torch or '?'}, CUDA {wheel.cuda.partition('.')[0]}{abi}, {facts.python}; {code}"


def _reasons(reasons: Reasons) -> Iterator[str]:
    for reason in reasons:
        yield f"{_INDENT}{reason.text}"
        fix = str(reason.fix)
        # An option that tells a missing fact is an example: its value is nobody's answer.
        is_example = reason.verdict is Verdict.UNCERTAIN and fix.startswith("--")
        yield f"{_INDENT}-> {'give it, for example ' if is_example else ''}{fix}"


def _counts(plan: Plan) -> Iterator[str]:
    fit = len(plan.ranked)
    yield f"  {plan.considered:,} considered: {fit:,} fit, {len(plan.uncertain):,} may; left out are"
    width = max(len(f"{rejection.count:,}") for rejection in plan.rejections)
    for rejection in plan.rejections:
        nearest = f" (nearest: {rejection.nearest})" if rejection.nearest else ""
        yield f"    {rejection.count:>{width},}  {_RULED_OUT[rejection.rule]}{nearest}"


def describe_explained(named: str, found: Sequence[Judged], plan: Plan) -> str:
    """Why a wheel, or the nearest of those that were named, is not the chosen one, rule by rule."""
    lines = [describe_facts(plan.facts)]
    for judged in found[:_EXPLAINED]:
        lines += ["", f"  {judged.candidate.name}: {judged.verdict}", f"{_INDENT}{_source(judged.candidate)}"]
        lines += _reasons(judged.reasons)
        broken = {reason.id for reason in judged.reasons}
        lines.append(f"{_INDENT}keeps: {', '.join(rule.id for rule in RULES if rule.id not in broken)}")
        lines += _standing(judged, plan)
    if (more := len(found) - _EXPLAINED) > 0:
        lines += ["", f"  and {counted(more, 'other')} of {named}, which are no nearer"]
    return "\n".join(lines)


def _standing(judged: Judged, plan: Plan) -> list[str]:
    urls = [ranked.candidate.wheel.url for ranked in plan.ranked]
    chosen = plan.chosen
    if chosen is None or not judged.candidate.wheel.url or judged.candidate.wheel.url not in urls:
        return []
    place = urls.index(judged.candidate.wheel.url)
    if place == 0:
        return [f"{_INDENT}it is the one to take"]
    why = why_before(chosen, judged, plan.facts)
    before = f"; the first is {chosen.candidate.name}: {why}" if why else ""
    return [f"{_INDENT}it is number {place + 1} of {len(urls)} that fit{before}"]
