"""``flashdepot resolve``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from flashdepot.cli.common import answer, depot_option, examples, json_option, options, print_json, quiet_option, say
from flashdepot.cli.options import environment_options
from flashdepot.cli.resolve_page import describe, describe_explained
from flashdepot.cli.resolving import Asked, choice_options, command_with, question, taking
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.model.candidate import Decision
from flashdepot.model.diagnosis import Verdict
from flashdepot.resolve.plan import NOT_LISTED, Help, Resolution, helps


@click.command(
    epilog=examples(
        "flashdepot resolve --python .venv",
        "flashdepot resolve --torch 2.8.0+cu128 --python-tag cp312 --glibc 2.35 --gpu 9.0 --gpu 12.0 --driver 570",
        "flashdepot resolve --host node.json --allow community --json",
        "flashdepot resolve --explain flash_attn-2.7.2+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
    )
)
@options(
    environment_options,
    choice_options,
    click.option(
        "--explain", "named", metavar="WHEEL|VERSION", help="Say why this wheel was chosen, or why it was not."
    ),
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
    """Choose the best of all published wheels, the depot's libraries and what could be built, and say why.

    Facts that you do not give come from this machine and the active Python environment, or from --host FILE.

    Exit status: 0 something fits, 3 a fact is missing, 4 nothing fits.
    """
    wanted = Asked(**asked)
    resolution = question(wanted, Terminal(quiet=quiet))
    if named is not None:
        click.get_current_context().exit(_explain(resolution, named, as_json=as_json))
    decision = resolution.decision
    code = exit_code(decision)
    if as_json:
        take = {"command": taking(wanted, resolution)} if decision.chosen else {}
        found = [_help_row(wanted, one) for one in _helps(resolution)]
        print_json({"status": _STATUS[code], "exit_code": code, **decision.to_json(), **take, "helps": found})
    elif quiet and decision.chosen:
        answer(decision.chosen.candidate.name)
    else:
        commands = [(one, str(command_with(wanted, one))) for one in _helps(resolution)]
        answer(describe(decision, commands))
        if decision.chosen:
            answer(f"\n  {taking(wanted, resolution)}")
        elif commands:
            answer(f"\n  {commands[0][1]}")
    click.get_current_context().exit(code)


def _helps(resolution: Resolution) -> Sequence[Help]:
    """What would give a better answer, where this one is none or a build."""
    chosen = resolution.decision.chosen
    return helps(resolution) if chosen is None or chosen.candidate.origin.compiles else ()


def _help_row(asked: Asked, helped: Help) -> dict[str, Any]:
    return {
        "command": str(command_with(asked, helped)),
        "fitting": helped.fitting,
        "first": helped.first.candidate.name,
    }


_STATUS = {0: "decided", MissingToolError.exit_code: "facts missing", IncompatibleError.exit_code: "nothing fits"}


def exit_code(decision: Decision) -> int:
    """0 for a decision, that of a missing fact, or that of nothing compatible."""
    if decision.chosen is not None:
        return 0
    return MissingToolError.exit_code if decision.missing else IncompatibleError.exit_code


def _explain(resolution: Resolution, named: str, *, as_json: bool) -> int:
    """Judge what was named by every rule; the exit code is that of the nearest to fit."""
    found = resolution.explain(named)
    if found[0].candidate.wheel.source == NOT_LISTED:
        say(f"{named} is not in the catalog, so only its name is judged.")
    if as_json:
        print_json({"named": named, "found": [judged.to_json() for judged in found]})
    else:
        answer(describe_explained(named, found, resolution.decision))
    return EXIT_CODES[found[0].verdict]


EXIT_CODES = {
    Verdict.FITS: 0,
    Verdict.UNCERTAIN: MissingToolError.exit_code,
    Verdict.MISFIT: IncompatibleError.exit_code,
}
"""What a verdict comes to as the end of a command."""
