"""Publishing: what a matrix file asks for, how each part was verified, and the report.

docs/publishing.md has the format of the file.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from flashdepot.binary.fatbin import CodeKind
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.subject import Binary, read_subject
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.disk import write_atomic
from flashdepot.files.documents import read_toml
from flashdepot.model.codec import read
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Gpus, LibraryRequest
from flashdepot.model.target import names_of, spell
from flashdepot.remotes.push import Pushed
from flashdepot.resolve.project import KEYS, library_request, require_known, word_of
from flashdepot.wheel import Name, parse_names

_MOST = 1000


class _Document(msgspec.Struct):
    """A matrix file as it is written: the words of its tables are read by :func:`word_of`."""

    matrix: dict[str, Any] = {}
    include: list[dict[str, Any]] = []
    exclude: list[dict[str, Any]] = []
    out: str = "dist"
    index: str = ""
    url: str = ""
    remotes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class PublishedPart(msgspec.Struct, frozen=True):
    """One combination: the words of the file, and what they ask for."""

    words: Mapping[str, str]
    request: LibraryRequest

    @property
    def name(self) -> str:
        """The words on one line, in the order of the file."""
        return " ".join(f"{key}={word}" for key, word in self.words.items())


class PublishMatrix(msgspec.Struct, frozen=True):
    """A matrix file: where it is, the SHA-256 of its bytes, its parts in order, and where they go.

    ``out`` is the folder of the wheels. ``index`` is that of a package index and ``url`` its address; both are empty
    when the file names none. ``remotes`` are the names of those that are pushed to, empty for all that are set so.
    ``names`` are those that small wheels are written of, next to the others.
    """

    path: Path
    digest: str
    parts: tuple[PublishedPart, ...]
    out: Path
    index: Path | None = None
    url: str = ""
    remotes: tuple[str, ...] = ()
    names: tuple[Name, ...] = ()


def read_matrix(path: Path) -> PublishMatrix:
    """Read a matrix file; a relative path in it is one from its folder."""
    try:
        document = read_toml(path)
        digest = sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="docs/publishing.md has one to copy."
        ) from error
    require_known(document, _Document.__struct_fields__, path)
    try:
        asked = read(document, _Document)
        names = parse_names(",".join(asked.names))
    except ValueError as error:
        raise UsageError(f"{path}: {error}.") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from None
    folder = path.parent.absolute()
    return PublishMatrix(
        path=path,
        digest=digest,
        parts=tuple(_parts(asked, path)),
        out=folder / asked.out,
        index=folder / asked.index if asked.index else None,
        url=asked.url,
        remotes=asked.remotes,
        names=tuple(names),
    )


def combinations(
    axes: Mapping[str, Sequence[str]], include: Sequence[Mapping[str, str]], exclude: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """Every combination of the words of the axes, but for those that have all words of an exclusion; then the others."""
    every = [dict(zip(axes, words, strict=True)) for words in itertools.product(*axes.values())] if axes else []
    kept = [row for row in every if not any(left.items() <= row.items() for left in exclude)]
    found: list[dict[str, str]] = []
    for row in (*kept, *map(dict, include)):
        if row not in found:
            found.append(row)
    return found


def _parts(asked: _Document, path: Path) -> Iterator[PublishedPart]:
    require_known(asked.matrix, KEYS, path, "in [matrix]")
    axes = {key: _words(value, key, path) for key, value in asked.matrix.items()}
    count = math.prod(map(len, axes.values()))
    if count > _MOST:
        raise UsageError(f"{path} makes {count} combinations, and {_MOST} is the most for one file.")
    rows = {
        name: [_row(row, name, path) for row in tables]
        for name, tables in (("include", asked.include), ("exclude", asked.exclude))
    }
    for left in rows["exclude"]:
        if unknown := left.keys() - axes.keys():
            raise UsageError(f"{path}: [[exclude]] names '{min(unknown)}', which is not a key of [matrix].")
    found = combinations(axes, rows["include"], rows["exclude"])
    if not found:
        raise UsageError(f"{path} asks for nothing: there is no [matrix] and no [[include]] that has a part.")
    for row in found:
        yield PublishedPart(row, _request(row, path))


def _request(row: Mapping[str, str], path: Path) -> LibraryRequest:
    named = " ".join(f"{key}={word}" for key, word in row.items())
    try:
        request = library_request(**{key.replace("-", "_"): word for key, word in row.items()})
    except UsageError as error:
        raise UsageError(f"{path}: {named}: {error.message}", hint=error.hint) from None
    if request.arch is None or request.arch is Gpus.NATIVE:
        raise UsageError(
            f"{path}: {named}: it names no GPUs with 'arch', and this machine's are not assumed.",
            hint='Name them, as in arch = ["80,86,89,90,120"]. All that flash-attn runs on: arch = ["universal"]',
        )
    return request


def _row(row: Mapping[str, Any], table: str, path: Path) -> dict[str, str]:
    require_known(row, KEYS, path, f"in [{table}]")
    return {key: word_of(word, key, path) for key, word in row.items()}


def _words(value: Any, key: str, path: Path) -> list[str]:
    words = [word_of(word, key, path) for word in (value if isinstance(value, list) else [value])]
    if not words:
        raise UsageError(f"{path}: '{key}' is an empty list: nothing would be made.")
    return words


_KINDS = {"linux": FileKind.ELF_SHARED, "windows": FileKind.PE_LIBRARY}


def verify_wheel(wheel: Path, manifest: Manifest) -> None:
    """Read every byte of a wheel and compare it with the manifest of its library."""
    subject = read_subject(wheel)
    problems = [*(subject.wheel.problems if subject.wheel else ()), *library_problems(subject.binaries, manifest)]
    if problems:
        raise IntegrityError(
            f"{wheel.name} is not what its manifest says: {'; '.join(problems)}.",
            hint="Nothing of it was pushed. Make it again; if that does not help, report it with 'flashdepot depot verify --json'.",
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
        yield f"{name} takes {min(library.torch_symbols)} from torch, and would not work with every torch"


REPORT_NAME = "flashdepot-publish.json"
_KIND = "a report of flashdepot publish"
_SCHEMA = 1
WAITING, FAILED = "waiting", "failed"


class PartReport(msgspec.Struct, frozen=True):
    """One part: ``waiting``, ``built``, ``fetched``, ``hit`` or ``failed``; what of it is known depends on how far it came.

    ``compiled`` and ``reused`` count units. ``verified`` says that the wheel was read and compared with its manifest.
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
    verified: bool = False
    pushed: Mapping[str, Pushed] = {}
    problem: FlashdepotError | None = None

    def to_json(self) -> dict[str, Any]:
        """All fields; what is not known yet is left out."""
        document: dict[str, Any] = {"name": self.part.name, "words": dict(self.part.words), "status": self.status}
        if self.recipe_key:
            names = ("recipe_key", "wheel", "sha256", "size", "compiled", "reused", "seconds", "verified")
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
    """All parts, the folder of the wheels, who signed what was pushed, and the index that was written, if one was.

    ``names`` has the SHA-256 of each small wheel, by its file's name.
    """

    matrix: PublishMatrix
    out: Path
    parts: tuple[PartReport, ...]
    signer: str = ""
    names: Mapping[str, str] = {}
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
            "names": dict(self.names),
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
        f"{path} exists and is not a report of flashdepot publish, so it is not replaced.",
        hint="Move it away, or name another folder: --out DIR",
    )
