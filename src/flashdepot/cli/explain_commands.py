"""``flashdepot explain``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from flashdepot import api
from flashdepot.cli.common import (
    answer,
    depot_option,
    examples,
    host_option,
    json_option,
    load_host,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
)
from flashdepot.doctor.explain import Cause, LogReport
from flashdepot.doctor.explain import explain as explain_log
from flashdepot.errors import UsageError

UNKNOWN = 4
"""The exit code for a log that no rule knows."""


@click.command(
    epilog=examples(
        "flashdepot explain build.log",
        "pip install flash-attn 2>&1 | flashdepot explain -",
        "flashdepot explain build.log --host node.json --json",
        "flashdepot explain                     (the last failed compile of the depot)",
    )
)
@click.argument("log", required=False, metavar="[LOG|-]")
@options(host_option, depot_option, json_option, quiet_option)
def explain(log: str | None, host_file: Path | None, depot: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Find the cause of a failure in a log, and the commands that fix it.

    Reads the output of pip, uv, cargo, CMake, nvcc, linkers and Python, also from containers and CI services.
    If there are several causes, each comes before the ones that it led to. Exit code 4: no rule knows the log,
    and its earliest error lines are shown.
    """
    host = load_host(host_file)
    with ExitStack() as stack:
        if log == "-":
            stream = sys.stdin.buffer
        else:
            path = Path(log) if log else _last_failed(open_depot(depot).layout.logs)
            if not log and not quiet:
                say(f"Reading {path}.")
            try:
                stream = stack.enter_context(path.open("rb"))
            except OSError as error:
                raise UsageError(
                    f"The log {path} cannot be read: {error.strerror}.", hint="Name a file, or - for standard input."
                ) from error
        report = api.explain(stream, host)
    if as_json:
        print_json(report.to_json())
    else:
        answer(describe(report))
    if not report.findings:
        sys.exit(UNKNOWN)


def _last_failed(folder: Path) -> Path:
    """The newest log of a compiler that failed.

    :raises UsageError: when there is none.
    """
    newest_first = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first:
        with path.open("rb") as stream:
            report = explain_log(stream)
        if report.findings or report.errors:
            return path
    raise UsageError(
        f"No compile failed in this depot: {folder} has no log with an error.",
        hint="Name a log: flashdepot explain build.log, or - for standard input.",
    )


def describe(report: LogReport) -> str:
    """The report as a page: the first cause in full, then what follows from it or stands beside it."""
    if not report.findings:
        lines = ["No rule knows this log."]
        if report.errors:
            lines += ["Its earliest error lines; the first is the one to look up, the others usually follow from it:"]
            lines += [f"  line {e.number}: {e.text}" for e in report.errors]
        else:
            lines.append("It has no line that states an error.")
        return "\n".join([*lines, "What to do next:", *(f"    {step}" for step in report.next_steps)])
    return "\n\n".join(_describe(finding) for finding in report.findings)


def _describe(finding: Cause) -> str:
    likely = "" if finding.proven else " (likely; the line that would confirm it is not in the log)"
    lines = [f"{finding.id}: {finding.title}{likely}", f"  line {finding.line.number}: {finding.line.text}"]
    lines += [f"  {fact}" for fact in finding.facts]
    lines += [f"  Why: {finding.why}", "  How to fix it:", *(f"    {command}" for command in finding.fix)]
    return "\n".join(lines)
