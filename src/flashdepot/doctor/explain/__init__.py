"""What a log says went wrong: its cause, its consequences, and the commands that fix it.

Typical usage::

    with open("build.log", "rb") as log:
        report = explain(log, host=probe())
    for finding in report.findings:
        print(finding.title, finding.fix)
"""

from __future__ import annotations

from typing import BinaryIO

from flashdepot.doctor.explain.demangle import demangle
from flashdepot.doctor.explain.lines import read_chunks
from flashdepot.doctor.explain.match import match
from flashdepot.doctor.explain.report import Cause, LogReport, make_report
from flashdepot.doctor.explain.rules import load_rules
from flashdepot.model.host import HostRecord

__all__ = ["Cause", "LogReport", "explain"]


def explain(log: BinaryIO, host: HostRecord | None = None) -> LogReport:
    """Read a log to its end, in constant memory, and say what it shows.

    :param host: the machine that the advice is for; ``None`` keeps it general.
    """
    return make_report(match(load_rules(), read_chunks(log)), host, demangle)
