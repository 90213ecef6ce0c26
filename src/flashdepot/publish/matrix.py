"""The matrix file: which libraries are made for others. See docs/publishing.md for its format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.errors import UsageError, did_you_mean
from flashdepot.files.documents import read_toml
from flashdepot.model.request import Gpus, LibraryRequest
from flashdepot.resolve.project import KEYS, library_request

_TABLES = ("matrix", "include", "exclude")
_PATHS = ("out", "index")
_OTHERS = (*_PATHS, "url", "remotes")
_MOST = 1000


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
    """

    path: Path
    digest: str
    parts: tuple[PublishedPart, ...]
    out: Path
    index: Path | None = None
    url: str = ""
    remotes: tuple[str, ...] = ()


def read_matrix(path: Path) -> PublishMatrix:
    """Read a matrix file; a relative path in it is one from its folder.

    :raises UsageError: for a file that cannot be read, a key or a word that is not known, or a part that names no GPUs.
    """
    try:
        document = read_toml(path)
        digest = sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="docs/publishing.md has one to copy."
        ) from error
    _require_known(document, (*_TABLES, *_OTHERS), path)
    folders = {key: path.parent.absolute() / _text(document[key], key, path) for key in _PATHS if key in document}
    remotes = document.get("remotes", [])
    if not isinstance(remotes, list) or not all(isinstance(name, str) for name in remotes):
        raise UsageError(f"{path}: 'remotes' must be a list of names.")
    return PublishMatrix(
        path=path,
        digest=digest,
        parts=tuple(_parts(document, path)),
        out=folders.get("out", path.parent.absolute() / "dist"),
        index=folders.get("index"),
        url=_text(document.get("url", ""), "url", path),
        remotes=tuple(remotes),
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


def _parts(document: Mapping[str, Any], path: Path) -> Iterator[PublishedPart]:
    axes = {key: _words(value, key, path) for key, value in _table(document.get("matrix", {}), "matrix", path).items()}
    count = 1
    for words in axes.values():
        count *= len(words)
    if count > _MOST:
        raise UsageError(f"{path} makes {count} combinations, and {_MOST} is the most for one file.")
    rows = {
        key: [_row(row, key, path) for row in _list(document.get(key, []), key, path)] for key in ("include", "exclude")
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
            f"{path}: {named}: it says for which GPUs by no 'arch', and the ones of this machine are not those of others.",
            hint='Name them, as in arch = ["80,86,89,90,120"]. All that flash-attn runs on: arch = ["universal"]',
        )
    return request


def _row(value: Any, table: str, path: Path) -> dict[str, str]:
    row = _table(value, table, path)
    return {key: _word(word, key, path) for key, word in row.items()}


def _table(value: Any, name: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: '{name}' must be a table.")
    _require_known(value, KEYS, path, f" in [{name}]")
    return value


def _list(value: Any, name: str, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise UsageError(f"{path}: '{name}' must be tables: [[{name}]].")
    return value


def _words(value: Any, key: str, path: Path) -> list[str]:
    words = [_word(word, key, path) for word in (value if isinstance(value, list) else [value])]
    if not words:
        raise UsageError(f"{path}: '{key}' is an empty list, so that there would be nothing to make.")
    return words


def _word(value: Any, key: str, path: Path) -> str:
    """A text or a number; a list in the list of an axis is joined by commas, as the command line has it."""
    members = value if isinstance(value, list) else [value]
    if not members or not all(isinstance(word, (str, int, float)) and not isinstance(word, bool) for word in members):
        raise UsageError(f"{path}: '{key}' must be texts or numbers, or lists of these.")
    return ",".join(map(str, members))


def _text(value: Any, key: str, path: Path) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{path}: '{key}' must be a text.")
    return value


def _require_known(table: Mapping[str, Any], known: Sequence[str], path: Path, where: str = "") -> None:
    for key in table:
        if key not in known:
            suggestion = did_you_mean(key, known)
            raise UsageError(f"{path}: '{key}' is not a key{where}: there are {', '.join(known)}.{suggestion}")
