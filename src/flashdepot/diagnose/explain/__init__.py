"""What a log says went wrong: its cause, its consequences, and the commands that fix it.

Typical usage::

    with open("build.log", "rb") as log:
        report = explain(log, host=probe())
    for finding in report.findings:
        print(finding.title, finding.fix)
"""

from __future__ import annotations

from typing import BinaryIO

from flashdepot.diagnose.explain.lines import read_chunks
from flashdepot.diagnose.explain.match import match
from flashdepot.diagnose.explain.releases import Ask, IndexQuestion, ask_nobody, question, to_ask
from flashdepot.diagnose.explain.report import Cause, LogReport, make_report
from flashdepot.diagnose.explain.rules import load_rules
from flashdepot.diagnose.explain.shell import NOWHERE, Files, UserShell
from flashdepot.errors import CompileError
from flashdepot.model.host import HostRecord

__all__ = ["NOWHERE", "Ask", "Cause", "Files", "IndexQuestion", "LogReport", "explain"]


def explain(
    log: BinaryIO, host: HostRecord | None = None, command: str = "", files: Files = NOWHERE, ask: Ask = ask_nobody
) -> LogReport:
    """Read a log to its end, in constant memory, and say what it shows.

    :param host: the machine that the advice is for; ``None`` keeps it general.
    :param command: what wrote the log, as a shell takes it, where that is known.
    :param files: the files of that machine, where they can be read.
    :param ask: asks a package index for what failed to be installed from one, where advice depends on it.
    """
    outcome = match(load_rules(), read_chunks(log), command)
    shell = UserShell(outcome, host, files)
    if asked := to_ask(outcome):
        shell.asked, shell.pages = asked, ask(question(asked, outcome, files))
    return make_report(outcome, shell)


def explained(error: CompileError, host: HostRecord) -> CompileError:
    """The error with what its log shows in place of its hint: what fixes it here, and where the log is."""
    if error.log is None or not error.log.is_file():
        return error
    with error.log.open("rb") as log:
        findings = explain(log, host, files=Files(here=True)).findings
    if not findings:
        return error
    cause = findings[0]
    lines = [f"{cause.id}: {cause.title}", *cause.facts, "How to fix it:", *(f"  {fix}" for fix in cause.fix)]
    hint = "\n  ".join([*lines, f"The whole output: {error.log}"])
    return CompileError(error.message, hint=hint, log=error.log)
