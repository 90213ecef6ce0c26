"""``flashdepot resolve``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from flashdepot.catalog.machine_code import implied_sass
from flashdepot.cli.common import answer, depot_option, examples, json_option, options, print_json, quiet_option, say
from flashdepot.cli.resolve_page import describe, describe_explained
from flashdepot.cli.resolving import Asked, Question, choice_options, facts_options, understand_question
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.model.candidate import Decision, Judged, Verdict
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.wheel_name import WheelName
from flashdepot.model.wheel_request import COMMUNITY
from flashdepot.resolve.decide import explain, judge_candidate


@click.command(
    epilog=examples(
        "flashdepot resolve --python .venv",
        "flashdepot resolve --torch 2.8.0+cu128 --python-tag cp312 --glibc 2.35 --gpu 9.0 --gpu 12.0 --driver 570",
        "flashdepot resolve --host node.json --allow community --json",
        "flashdepot resolve --explain flash_attn-2.7.2+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
    )
)
@options(
    facts_options,
    choice_options,
    click.option("--explain", "named", metavar="WHEEL|VERSION", help="Say why this one, or why it is not the one."),
    depot_option,
    json_option,
    quiet_option,
)
def resolve(
    named: str | None,
    *,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Choose among all that is published, all that the depot has, and what could be built, and say why.

    Facts that no option names are those of this machine and of the active Python environment, or of --host FILE.

    Exit status: 0 there is a choice, 3 a fact is missing to tell, 4 nothing fits.
    """
    question = understand_question(Asked(**asked))
    if named is not None:
        click.get_current_context().exit(_explain(question, named, as_json=as_json))
    decision = question.decision
    code = exit_code(decision)
    if as_json:
        print_json({"status": _STATUS[code], "exit_code": code, **decision.to_json()})
    elif quiet and decision.chosen:
        answer(decision.chosen.candidate.name)
    else:
        answer(describe(decision))
    click.get_current_context().exit(code)


_STATUS = {0: "decided", MissingToolError.exit_code: "facts missing", IncompatibleError.exit_code: "nothing fits"}


def exit_code(decision: Decision) -> int:
    """0 for a decision, that of a missing fact, or that of nothing compatible."""
    if decision.chosen is not None:
        return 0
    return MissingToolError.exit_code if decision.missing else IncompatibleError.exit_code


def _explain(question: Question, named: str, *, as_json: bool) -> int:
    """Judge what was named by every rule; the exit code is that of the nearest to fit."""
    mine = [j for j in question.own if named in {str(j.candidate.origin), j.candidate.name, j.candidate.wheel.version}]
    found: list[Judged] = [*mine, *explain(question.request, question.published, named)]
    if not found and not named.endswith(".whl"):
        raise UsageError(
            f"'{named}' is neither the file name nor the version of a wheel in the catalog.",
            hint="'flashdepot catalog update' asks for newer ones; 'flashdepot check FILE' judges a file by its bytes.",
        )
    found = found or [_unlisted(question, named)]
    found.sort(key=lambda judged: judged.verdict.rank)
    if as_json:
        print_json({"named": named, "found": [judged.to_json() for judged in found]})
    else:
        answer(describe_explained(named, found, question.decision))
    codes = {
        Verdict.FITS: 0,
        Verdict.UNCERTAIN: MissingToolError.exit_code,
        Verdict.MISFIT: IncompatibleError.exit_code,
    }
    return codes[found[0].verdict]


def _unlisted(question: Question, name: str) -> Judged:
    """A wheel that no collection lists, judged by its name; :raises UsageError: when it is not a wheel's."""
    parts = WheelName.parse(name)
    built_for, sass = parts.built_for, implied_sass(parts, official=False)
    wheel = PublishedWheel(parts.canonical, parts.version, built_for.cuda, built_for.torch, built_for.cxx11_abi,
        parts.python, parts.abi, parts.platform, "not listed", name, 0, "", False, sass, "")  # fmt: skip
    say(f"No collection in the catalog has {name}: it is judged by its name.")
    return judge_candidate(replace(question.request, sources=question.request.sources | {COMMUNITY}), wheel)
