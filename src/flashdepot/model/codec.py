"""Data as bytes that are the same everywhere, and documents read into types with the key in every complaint."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from enum import Enum
from functools import total_ordering
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from flashdepot.errors import UsageError

_T = TypeVar("_T")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: object) -> bool:
    """Whether something is a SHA-256 as :func:`digest_of` spells it, and therefore safe as a file name."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys and no blanks: equal data, equal bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(data: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of ``data``."""
    return hashlib.sha256(canonical_json(data)).hexdigest()


Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
"""A SHA-256 in hexadecimal."""

Natural = Annotated[int, msgspec.Meta(ge=0)]


class FixedWord(str, Enum):
    """One of a few words; ``str()`` gives it."""

    def __str__(self) -> str:
        return str(self.value)

    @property
    def rank(self) -> int:
        """Its place among them, from 0 on."""
        return list(type(self)).index(self)


@total_ordering
class Spelled(ABC):
    """A value with one spelling, which ``parse`` reads and ``str()`` gives: in documents it is a text.

    Two are equal, and ordered, by :attr:`_key`. (msgspec would read a struct of its own from a table.)
    """

    __slots__: tuple[str, ...] = ()

    @property
    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Any:
        """Read the spelling; :raises UsageError: for anything else."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: Any) -> bool:
        return bool(self._key < other._key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def plain(value: Any) -> Any:
    """A value as JSON has it: structs as tables in the order of their fields, mappings and sets sorted."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_text, order="deterministic"))


def _text(value: object) -> str:
    # A path without a drive is one of Linux's, in a record that is read on Windows.
    return value.as_posix() if isinstance(value, Path) and not value.drive else str(value)


def read(data: Any, kind: type[_T]) -> _T:
    """A document as a type: structs from tables, :class:`Spelled` values and paths from texts.

    Typical usage::

        record = read(json.loads(text), HostRecord)

    :raises ValueError: for what is missing, of another kind or cannot be; it names the key and shows the value, unless that is a list or table.
        :class:`UnknownWordError` for a word that is not allowed there.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=from_text)
    except msgspec.ValidationError as error:
        what = UnknownWordError if str(error).startswith("Invalid enum value") else ValueError
        raise what(_complaint(str(error), data)) from error


def read_document(data: Any, kind: type[_T], schema: int, name: str = "") -> _T:
    """A document that says its ``schema``, and its ``kind`` where that has a ``name``, as a type; raises as :func:`read`."""
    head = read(data, _Head)
    if name and head.kind != name:
        raise ValueError(f"it is not {name}")
    if head.schema != schema:
        raise ValueError(f"its schema is {head.schema}, and this flashdepot reads {schema}")
    return read(data, kind)


class _Head(msgspec.Struct):
    schema: int
    kind: str = ""


class UnknownWordError(ValueError):
    """A word that is not allowed there; a later release may know it."""


def from_text(kind: type, text: object) -> Any:
    """A :class:`Spelled` value or a path from its text, for decoders of msgspec; :raises ValueError: for any other text."""
    if not isinstance(text, str):
        raise ValueError("expected a text")  # noqa: TRY004  (a value of a file)
    try:
        return kind.parse(text) if issubclass(kind, Spelled) else Path(text)
    except UsageError as error:
        raise ValueError(error.message) from error


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table"}  # fmt: skip
_SHOWN = 80


def _complaint(said: str, data: Any) -> str:
    """What msgspec says, by the key, with the value, in the words of files."""
    said, _, place = said.partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", said):
        return f"{f'{place}.' if place else ''}{missing[1]} is missing"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", said):
        return f"{f'{place}.' if place else ''}{unknown[1]} is not a key of this file"
    said = re.sub(r"^Expected `(\w+)(?: \| null)?`, got .*", lambda m: f"expected {_KINDS.get(m[1], m[1])}", said)
    if "[...]" in place:  # below a key that is not known
        return f"{place}: {said}"
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
        data = data[int(number) if number else name]
    if isinstance(data, (dict, list)):
        return f"{place or 'it'}: {said}"
    found = re.sub(r"//[^/@\s]*@", "//", repr(data))  # an address may have a password in it
    return f"{place or 'it'} is {found if len(found) <= _SHOWN else f'{found[:_SHOWN]}...'}: {said}"
