"""``flashdepot check`` and ``flashdepot explain``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashdepot import api
from flashdepot.cli.common import Verb, command, depot_option, flag, host_option, options
from flashdepot.cli.options import environment_options
from flashdepot.cli.output import View, is_quiet, is_verbose, say
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.diagnose.check.judge import Outcome
from flashdepot.diagnose.check.run import Report
from flashdepot.errors import UsageError
from flashdepot.host import saved_host
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import counted, joined
from flashdepot.resolve.facts import Given

if TYPE_CHECKING:
    from flashdepot.diagnose.explain import Cause, LogReport
    from flashdepot.diagnose.explain.steps import Step


@command(
    "flashdepot check flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --python .venv/bin/python",
    "flashdepot check vllm_flash_attn_2_cuda.abi3.so --torch 2.8+cu128 --gpu 9.0",
    "flashdepot check prebuilt --host node.json    # what 'vendor' wrote: the libraries for that system",
)
@click.argument("files", metavar="FILE|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@environment_options
def check(files: tuple[Path, ...], given: Given) -> View:
    """Check whether wheels and libraries fit, before you import them.

    Reads only the files' bytes: GPU architectures, torch symbols and C++ ABI, C and C++ library versions, needed
    libraries, tags, digests. Nothing is loaded and no GPU is needed. DIR is what 'flashdepot get' or 'vendor'
    wrote, has wheels in it, or is the folder of an installed package.

    Exit code: 0 fits, 3 cannot tell, 4 does not fit, 6 damaged; the worst of several files.
    """
    reports = api.check(files, python=given.python, named=given.named, host=given.saved, events=terminal())
    worst = max((report.verdict for report in reports), key=lambda outcome: outcome.rank)
    document = {"status": worst.value, "files": [report.to_json() for report in reports]}
    page = "\n\n".join(describe(report, verbose=is_verbose()) for report in reports)
    return View(document, [page], status=worst.exit_code)


def describe(report: Report, *, verbose: bool) -> str:
    """The verdict in one line, then the evidence, worst first; what fits is summed up unless more is asked for."""
    lines = [f"{report.path}: {report.verdict.value}"]
    for line in report.evidence:
        where = f" [{line.where}]" if line.where and line.where != Path(report.path).name else ""
        has = f" | {line.has}" if line.has else ""
        if verbose or line.outcome is not Outcome.FITS or line.topic in {"architectures", "torch symbols"}:
            lines.append(f"  {line.outcome.value:<12} {line.topic}: {line.seen}{has}{where}")
            if line.fix:
                lines.append(f"{'':15}{line.fix}")
    quiet = len({line.topic for line in report.evidence if line.outcome is Outcome.FITS})
    if not verbose and quiet:
        lines.append(f"  {counted(quiet, 'topic')} fit{'s' if quiet == 1 else ''}; -v shows every line")
    return "\n".join(lines)


_COMMAND = "flashdepot.explain.command"

UNKNOWN_LOG = 4
"""The exit code for a log that no rule knows."""


class _LogOrCommand(Verb):
    """Remembers whether its words came after ``--``, which makes them another program's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_COMMAND] = "--" in args
        return super().parse_args(ctx, args)


@command(
    "flashdepot explain -- pip install flash-attn --no-build-isolation",
    "flashdepot explain build.log",
    'flashdepot explain "ImportError: libcudart.so.12: cannot open shared object file"',
    'flashdepot explain "flash-attn hangs at building wheel"',
    "pip install flash-attn 2>&1 | flashdepot explain -",
    "flashdepot explain build.log --host node.json --json",
    "flashdepot explain                     (the last failed compile of the depot)",
    cls=_LogOrCommand,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[LOG | TEXT | - | -- COMMAND...]")
@flag("--steps  First show which commands the log was read as, and how each ended.")
@options(host_option, depot_option)
@click.pass_context
def explain(
    context: click.Context, words: tuple[str, ...], host_file: Path | None, depot: Depot, *, steps: bool
) -> View:
    """Find the cause of a failure in a log, and the commands that fix it.

    Reads the output of pip, uv, cargo, CMake, nvcc, linkers and Python, also from containers and CI services.
    If there are several causes, each comes before the ones that it led to. Exit code 4: no rule knows the log,
    and its earliest error lines are shown.

    After -- comes a command: it is run, its output is shown as it comes, on standard error, and its failure is
    explained. flashdepot then ends with the exit code of the command.
    """
    host = saved_host(host_file) if host_file is not None else None
    if context.meta[_COMMAND] and words:
        return _command_explained(words, host, steps=steps)
    if len(words) > 1:
        hint = f"To run a command and explain its failure: flashdepot explain -- {joined(words)}"
        if Path(words[0]).is_file():
            hint = (
                f"To read them as one: {joined(['type' if os.name == 'nt' else 'cat', *words])} | flashdepot explain -"
            )
        raise UsageError(f"explain reads one log, and {len(words)} words were given.", hint=hint)
    log = words[0] if words else _last_failed(depot.layout.logs)
    if not words:
        say(f"Reading {log}.")
    report = api.explain(sys.stdin.buffer if log == "-" else log, host)
    return View(report.to_json(), _pages(report, steps=steps), status=0 if report.findings else UNKNOWN_LOG)


def _command_explained(words: Sequence[str], host: HostRecord | None, *, steps: bool) -> View:
    done = api.explain_command(words, host, (lambda _: None) if is_quiet() else _pass_on)
    document = {**done.report.to_json(), "command": list(words), "exit_code": done.status}
    page = [f"\n'{words[0]}' failed with exit code {done.status}.\n", *_pages(done.report, steps=steps)]
    return View(document, page if done.status else [], status=done.status)


def _pages(report: LogReport, *, steps: bool) -> list[str]:
    return [describe_steps(report), "", describe_log(report)] if steps else [describe_log(report)]


def _pass_on(output: bytes) -> None:
    sys.stderr.buffer.write(output)
    sys.stderr.buffer.flush()


def _last_failed(folder: Path) -> Path:
    """The newest log of a compiler that failed."""
    from flashdepot.diagnose.explain import explain as explain_log  # noqa: PLC0415  ('check' reads no log)

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


def describe_log(report: LogReport) -> str:
    """The report as a page: the cause in full, or those that are possible, and what to do where it is not certain."""
    pages = [_described(report)]
    if report.certain:
        pages = ["\n".join([*_head(finding), *_reason(finding)]) for finding in report.findings]
    elif report.findings:
        pages = [_undecided(report)]
    shown = {*report.errors, *(finding.line for finding in report.findings)}
    if hints := [hint for hint in report.hints if hint not in shown]:
        pages.append("\n".join(["The log itself says:", *(f"  line {hint.number}: {hint.text}" for hint in hints)]))
    if report.next_steps:
        pages.append("\n".join(["What to do next:", *(f"    {step}" for step in report.next_steps)]))
    return "\n\n".join(pages)


def _undecided(report: LogReport) -> str:
    """The line that says most, what was found in full, and what else it may mean with a command of its own."""
    line = report.findings[0].line
    lines = [
        "This log does not say for certain why it failed. The line that says most:",
        f"  line {line.number}: {line.text}",
        "What it may mean, the likeliest first:",
    ]
    return "\n".join([*lines, *_possible(report)])


def _possible(report: LogReport) -> Iterator[str]:
    """What may be the cause, numbered: what was found in full, the rest with a command; and its line, where another was named."""
    found = report.findings or report.described[: int(report.sentence)]
    for number, (cause, fix) in enumerate(report.each_possible(), 1):
        where = "" if found and cause.line == found[0].line else f" (line {cause.line.number})"
        yield f"  {number}. {cause.id}: {cause.title}{where}"
        yield from (f"   {said}" for said in _reason(cause)) if cause in found else (f"       {fix}",)


def _described(report: LogReport) -> str:
    """What a person or a warning speaks of, and the earliest error lines."""
    if report.sentence:
        said = "It may be, the likeliest first:" if report.described else "They do not say why it fails."
        return "\n".join([f"These are your own words, and no program's. {said}", *_possible(report)])
    lines = ["No rule knows this log."]
    if report.described:
        lines = [
            "The line that decides is missing, or the program itself may be at fault. It may be, the likeliest first:"
        ]
    lines += _possible(report)
    if not report.errors:
        return "\n".join([*lines, "It has no line that states an error."])
    said = "Its earliest error lines; the first is the one to look up, the others usually follow from it:"
    lines.append(said if report.decided else "It says that something failed, but not why:")
    return "\n".join([*lines, *(f"  line {error.number}: {error.text}" for error in report.errors)])


def _head(finding: Cause) -> list[str]:
    return [f"{finding.id}: {finding.title}", f"  line {finding.line.number}: {finding.line.text}"]


def _reason(cause: Cause) -> list[str]:
    facts = [f"  {fact}" for fact in cause.facts]
    return [*facts, f"  Why: {cause.why}", "  How to fix it:", *(f"    {command}" for command in cause.fix)]


def describe_steps(report: LogReport) -> str:
    """The log as the story of its commands, one a line, and what it says of its machine."""
    lines = [_describe_step(step) for step in report.steps] or ["No command is known that wrote this log."]
    facts = {name: value for name, value in report.facts.to_json().items() if value}
    said = ", ".join(f"{n} {', '.join(v) if isinstance(v, list) else v}" for n, v in facts.items())
    return "\n".join([*lines, f"machine: {said or 'nothing is said of it'}"])


def _describe_step(step: Step) -> str:
    about = " ".join(filter(None, (step.package, step.version)))
    said = step.command or " ".join(filter(None, (step.tool, f"of {step.installer}" if step.installer else "")))
    return f"lines {step.first} to {step.last}: {step.phase or 'command'}{f' {about}' if about else ''} ({said})"
