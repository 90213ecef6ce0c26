"""From a file to its report."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.diagnose.check.judge import Evidence, Outcome, evidence_of, judge_architectures, judge_binary
from flashdepot.diagnose.check.judge_wheel import judge_claims, judge_cuda_name, judge_extension_name, judge_wheel
from flashdepot.diagnose.check.place import Place
from flashdepot.diagnose.check.subject import Subject, imports_torch, optional_files, read_subject
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.fit.rules import ask
from flashdepot.model.codec import plain
from flashdepot.model.environment import NO_TORCH


class Report(msgspec.Struct, frozen=True):
    """The verdict on one file, worst evidence first, and what is known of it as JSON."""

    path: str
    kind: str
    evidence: tuple[Evidence, ...]
    facts: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Report: {self.path} {self.verdict.value}>"

    @property
    def verdict(self) -> Outcome:
        """The worst outcome; what nothing speaks against fits."""
        worst = max((e.outcome for e in self.evidence), key=lambda outcome: outcome.rank, default=Outcome.FITS)
        return Outcome.FITS if worst is Outcome.NOTE else worst

    def to_json(self) -> dict[str, Any]:
        """The report as ``--json`` prints it."""
        return {
            "file": self.path,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "evidence": [plain(e) for e in self.evidence],
            "facts": self.facts,
        }


_BACKEND = re.compile(r"[_-]?(?:cuda|cu|rocm|hip|xpu|cpu|mps|sycl)\d*(?:_nocublaslt\d*)?$")
_AGAINST = {Outcome.MISFIT, Outcome.UNKNOWN}


def with_alternatives(by_file: Mapping[str, Sequence[Evidence]]) -> dict[str, list[Evidence]]:
    """The evidence by file, where what speaks against a backend is a note as long as another one of the kind fits.

    Files are of one kind when their names differ in nothing but a backend at the end.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in by_file:
        path = PurePosixPath(name)
        stem = path.name.partition(".")[0]
        kinds[f"{path.parent}/{_BACKEND.sub('', stem)}"].append(name)
    found = {}
    for names in kinds.values():
        fitting = [name for name in names if not any(line.outcome in _AGAINST for line in by_file[name])]
        for name in names:
            lines = list(by_file[name])
            if fitting and name not in fitting:
                other = PurePosixPath(fitting[0]).name
                lines = [
                    _set_aside(line, f"{other} next to it fits") if line.outcome in _AGAINST else line for line in lines
                ]
            found[name] = lines
    return found


def _set_aside(line: Evidence, why: str) -> Evidence:
    """What speaks against a file that is not needed, as a note."""
    return replace(line, outcome=Outcome.NOTE, has=f"{line.has}; {why}".lstrip("; "), fix="")


_ARCHIVE = re.compile(r"\.(?:tar|gz|tgz|bz2|xz|zst|zip)$")
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
_SDIST = re.compile(r"[\w.]+-\d[\w.!+]*\.(?:tar\.(?:gz|bz2|xz|zst)|tgz|zip)")


def check_file(path: Path, place: Place) -> Report:
    """Read a file and compare it with a place. A damaged file is a verdict, not an error."""
    try:
        if (source := source_archive(path)) is not None:
            return source
        subject = read_subject(path)
    except IntegrityError as error:
        line = Evidence(Outcome.DAMAGED, "archive", error.message, fix=error.hint)
        return Report(str(path), "damaged", (line,), {})
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return judge(subject, place)


def source_archive(path: Path) -> Report | None:
    """The report on what holds sources or data and nothing that is loaded; ``None`` for another file.

    :raises OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(8)
    if not (_ARCHIVE.search(path.name) and head.startswith(_PACKED)) or _is_wheel(path, head):
        return None
    sdist = _SDIST.fullmatch(path.name)
    kind = "source distribution" if sdist else "archive"
    seen = f"it is {'a source distribution: it must be built before it is loaded' if sdist else 'an archive, not a wheel or a library'}"
    fix = "Build a wheel of it, or take one: flashdepot resolve" if sdist else "Unpack it, and check the files in it."
    return Report(str(path), kind, (Evidence(Outcome.UNKNOWN, "contents", seen, fix=fix),), {})


def _is_wheel(path: Path, head: bytes) -> bool:
    """Whether a zip archive has a wheel's metadata, or cannot be read: read_subject says what is wrong with it."""
    if not head.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(".dist-info/" in name for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError):
        return True


def _not_loaded(line: Evidence, *, data: bool) -> Evidence:
    """What speaks against a file that an import does without, as a note.

    Of a module only the libraries that are missing: wrong symbols or another CPU are no option that was left out.
    """
    if line.outcome not in _AGAINST or not (data or line.topic == "libraries"):
        return line
    return _set_aside(line, "the import does without it")


def judge(subject: Subject, place: Place) -> Report:
    """The report on a file that was read."""
    lines: list[Evidence] = []
    if subject.wheel is not None:
        lines += judge_wheel(subject.wheel, place)
        lines += judge_claims(subject.path.name, subject.binaries)
        if not subject.binaries:
            lines.append(Evidence(Outcome.NOTE, "contents", "it holds no compiled file"))
    by_file = {
        binary.name: [*judge_binary(binary, subject.binaries, place), *judge_extension_name(binary, place)]
        for binary in subject.binaries
    }
    doubtful = any(line.outcome in _AGAINST for found in by_file.values() for line in found)
    optional = optional_files(subject.path, subject.binaries) if subject.wheel and doubtful else frozenset()
    for name, found in with_alternatives(by_file).items():
        data = name in optional and not name.endswith((".so", ".pyd", ".dll"))
        lines += [_not_loaded(line, data=data) if name in optional else line for line in found]
    if subject.wheel is not None and any(binary.containers for binary in subject.binaries):
        lines += judge_cuda_name(subject.path.name, place)
        if (torch := place.facts.torch) is not None and imports_torch(subject):
            line = evidence_of(
                ask("torch-with-cuda", place.facts, need=True), "torch", "its import needs torch", torch.label
            )
            is_meant = torch != NO_TORCH or place.environment.origin_of("torch") != "probed"
            # Who makes a wheel in an environment without torch means it for another one.
            lines.append(line if is_meant else replace(line, outcome=Outcome.NOTE))
    lines += judge_architectures(subject.binaries, place)
    facts = {
        "name": subject.wheel.name if subject.wheel else None,
        "version": subject.wheel.version if subject.wheel else None,
        "binaries": [binary.to_json() for binary in subject.binaries],
    }
    return Report(str(subject.path), subject.kind, tuple(sorted(lines, key=lambda line: -line.outcome.rank)), facts)
