"""What stands in the way of an installation: an environment that is not known, and all that doctor finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flashdepot.doctor import Finding, Severity
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.python_environment import PythonEnvironment


def environment_of(record: HostRecord) -> PythonEnvironment:
    """The environment of a record, to install into.

    :raises UsageError: when there is none, with the reason.
    """
    if record.python is None:
        raise UsageError(
            record.no_python or "The record has no Python environment.",
            hint="Activate one, or name its interpreter: flashdepot install --python .venv/bin/python",
        )
    return record.python


def require_no_obstacle(findings: Sequence[Finding], python: Path, on_warning: Callable[[str], None]) -> None:
    """Stop where an installation cannot work; tell what may keep it from working.

    :param findings: worst first.
    :raises IncompatibleError: when hardware, driver or system are in the way.
    :raises MissingToolError: when something is missing that can be added.
    """
    blockers = [finding for finding in findings if finding.severity is Severity.BLOCKER]
    if blockers:
        first, more = blockers[0], len(blockers) - 1
        others = f" {more} more: flashdepot doctor install --python {python}" if more else ""
        kind = IncompatibleError if any(finding.incompatible for finding in blockers) else MissingToolError
        raise kind(f"{first.seen} {first.why}", hint=f"{first.mend}{others}")
    for finding in findings:
        if finding.severity is Severity.WARNING:
            on_warning(f"{finding.seen} {finding.why} {finding.mend}")
