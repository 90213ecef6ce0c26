"""What publishing came to, part by part: a file next to the wheels, which a run that continues replaces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from flashdepot.binary.fatbin import CodeKind
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.subject import Binary, read_subject
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.atomic import write_atomic
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import names_of, spell
from flashdepot.publish.matrix import PublishedPart, PublishMatrix
from flashdepot.remotes.push import Pushed

_KINDS = {"linux": FileKind.ELF_SHARED, "windows": FileKind.PE_LIBRARY}


def verify_wheel(wheel: Path, manifest: Manifest) -> None:
    """Read every byte of a wheel and compare it with the manifest of its library.

    :raises IntegrityError: with all that is not as it should be.
    """
    subject = read_subject(wheel)
    problems = [*(subject.wheel.problems if subject.wheel else ()), *library_problems(subject.binaries, manifest)]
    if problems:
        raise IntegrityError(
            f"{wheel.name} is not what its manifest says: {'; '.join(problems)}.",
            hint="Nothing of it was pushed. Make it again; if it stays so, report it with 'flashdepot depot verify --json'.",
        )


def library_problems(binaries: tuple[Binary, ...], manifest: Manifest) -> Iterator[str]:
    """What is wrong with the library among the compiled files of a wheel."""
    name = names_of(manifest.platform.system).shared
    found = [binary for binary in binaries if PurePosixPath(binary.name).name == name]
    if len(found) != 1:
        yield f"it has {len(found) or 'no'} {name}"
        return
    (library,) = found
    if library.kind is not _KINDS[manifest.platform.system]:
        yield f"{name} is {library.kind.value}, and it is for {manifest.platform}"
    if library.machines != {manifest.platform.machine}:
        yield f"{name} is for {', '.join(sorted(library.machines))}, not {manifest.platform.machine}"
    code = library.architectures(CodeKind.SASS)
    if set(code) != set(manifest.sass):
        yield f"{name} has machine code for {spell(code) or 'no GPU'}, and its manifest says {spell(manifest.sass)}"
    if library.torch_symbols:
        yield f"{name} takes {min(library.torch_symbols)} from torch, and works with any torch only without"


REPORT_NAME = "flashdepot-publish.json"
_KIND = "a report of flashdepot publish"
_SCHEMA = 1
WAITING, FAILED = "waiting", "failed"


class PartReport(msgspec.Struct, frozen=True):
    """One part: ``waiting``, ``built``, ``fetched``, ``hit`` or ``failed``; what of it is known depends on how far it came.

    ``compiled`` and ``reused`` count units. ``proven`` says that the wheel was read and compared with its manifest.
    ``pushed`` is by remote, ``problem`` what stopped it.
    """

    part: PublishedPart
    status: str = WAITING
    recipe_key: str = ""
    wheel: str = ""
    sha256: str = ""
    size: int = 0
    compiled: int = 0
    reused: int = 0
    seconds: float = 0.0
    proven: bool = False
    pushed: Mapping[str, Pushed] = {}
    problem: FlashdepotError | None = None

    def to_json(self) -> dict[str, Any]:
        """All fields; what is not known yet is left out."""
        document: dict[str, Any] = {"name": self.part.name, "words": dict(self.part.words), "status": self.status}
        if self.recipe_key:
            names = ("recipe_key", "wheel", "sha256", "size", "compiled", "reused", "seconds", "proven")
            document |= {name: getattr(self, name) for name in names} | {"seconds": round(self.seconds, 3)}
        if self.pushed:
            document["pushed"] = {name: msgspec.to_builtins(pushed) for name, pushed in self.pushed.items()}
        if self.problem is not None:
            document["problem"] = problem_document(self.problem)
        return document


def problem_document(problem: FlashdepotError) -> dict[str, Any]:
    """What stopped a part, for ``--json``."""
    return {"exit_code": problem.exit_code, "message": problem.message, "hint": problem.hint}


class PublishReport(msgspec.Struct, frozen=True):
    """All parts, the folder of the wheels, who signed what was pushed, and the index that was written, if one was."""

    matrix: PublishMatrix
    out: Path
    parts: tuple[PartReport, ...]
    signer: str = ""
    index: str = ""
    problem: FlashdepotError | None = None

    @property
    def exit_code(self) -> int:
        """0, or that of the first thing that failed."""
        problems = [
            problem for problem in (*(part.problem for part in self.parts), self.problem) if problem is not None
        ]
        return problems[0].exit_code if problems else 0

    def count(self, *statuses: str) -> int:
        """How many parts are so."""
        return sum(part.status in statuses for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return {
            "schema": _SCHEMA,
            "kind": _KIND,
            "matrix": str(self.matrix.path),
            "matrix_sha256": self.matrix.digest,
            "out": str(self.out),
            "signer": self.signer,
            "index": self.index,
            "exit_code": self.exit_code,
            "problem": self.problem.message if self.problem else "",
            "parts": [part.to_json() for part in self.parts],
        }

    def write(self) -> None:
        """Keep it next to the wheels; :raises UsageError: when something that is not such a report has its name."""
        require_own(self.out)
        write_atomic(self.out / REPORT_NAME, (json.dumps(self.to_json(), indent=1) + "\n").encode())


def require_own(out: Path) -> None:
    """:raises UsageError: when a file of the user's has the name of the report."""
    path = out / REPORT_NAME
    try:
        found = json.loads(path.read_bytes()) if path.is_file() and not path.is_symlink() else None
    except (OSError, ValueError, RecursionError):
        found = {}
    if (found is None and not path.is_symlink() and not path.exists()) or (
        isinstance(found, dict) and found.get("kind") == _KIND
    ):
        return
    raise UsageError(
        f"{path} is there, and is not a report of flashdepot publish: it is not replaced.",
        hint="Move it away, or name another folder: --out DIR",
    )


def waiting(parts: Sequence[PublishedPart]) -> tuple[PartReport, ...]:
    """The reports of parts that have not begun."""
    return tuple(PartReport(part) for part in parts)
