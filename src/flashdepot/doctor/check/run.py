"""From a file to its report."""

from __future__ import annotations

from pathlib import Path

from flashdepot.doctor.check.alternatives import with_alternatives
from flashdepot.doctor.check.evidence import Evidence, Outcome, Report, worst_evidence_first
from flashdepot.doctor.check.judge import judge_architectures, judge_binary
from flashdepot.doctor.check.judge_claims import judge_claims
from flashdepot.doctor.check.judge_wheel import judge_extension_name, judge_wheel
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.subject import Subject, read_subject
from flashdepot.errors import IntegrityError, UsageError


def check_file(path: Path, place: Place) -> Report:
    """Read a file and compare it with a place. A damaged file is a verdict, not an error.

    :raises UsageError: when there is no such file, or it cannot be read.
    """
    try:
        subject = read_subject(path)
    except IntegrityError as error:
        line = Evidence(Outcome.DAMAGED, "archive", error.message, fix=error.hint)
        return Report(str(path), "damaged", (line,), {})
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return judge(subject, place)


def judge(subject: Subject, place: Place) -> Report:
    """The report on a file that was read."""
    lines: list[Evidence] = []
    if subject.wheel is not None:
        lines += judge_wheel(subject.wheel, place)
        lines += judge_claims(subject.path.name, subject.binaries)
        if not subject.binaries:
            lines.append(Evidence(Outcome.NOTE, "contents", "it holds no compiled file"))
    by_file = {
        binary.name: [*judge_binary(binary, subject.binaries, place), *judge_extension_name(binary, place.python)]
        for binary in subject.binaries
    }
    for found in with_alternatives(by_file).values():
        lines += found
    lines += judge_architectures(subject.binaries, place)
    facts = {
        "name": subject.wheel.name if subject.wheel else None,
        "version": subject.wheel.version if subject.wheel else None,
        "binaries": [binary.to_json() for binary in subject.binaries],
    }
    return Report(str(subject.path), subject.kind, worst_evidence_first(lines), facts)
