"""What a failed compile's own log says about it."""

from __future__ import annotations

from flashdepot.doctor.explain import explain
from flashdepot.errors import CompileError
from flashdepot.model.host import HostRecord


def explained(error: CompileError, host: HostRecord) -> CompileError:
    """The error with what its log shows in the place of its hint: what fixes it here, and where the log is."""
    if error.log is None or not error.log.is_file():
        return error
    with error.log.open("rb") as log:
        findings = explain(log, host).findings
    if not findings:
        return error
    cause = findings[0]
    lines = [f"{cause.id}: {cause.title}", *cause.facts, "How to fix it:", *(f"  {fix}" for fix in cause.fix)]
    hint = "\n  ".join([*lines, f"The whole output: {error.log}"])
    return CompileError(error.message, hint=hint, log=error.log)
