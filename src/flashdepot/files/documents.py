"""JSON, TOML, and records: JSON that carries its own SHA-256."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from flashdepot.errors import IntegrityError, NewerError, UsageError
from flashdepot.files.disk import write_atomic
from flashdepot.model.codec import canonical_json


def write_json(path: Path, data: Any) -> None:
    """Write canonical JSON atomically."""
    write_atomic(path, canonical_json(data))


def read_json(path: Path) -> Any:
    """Read a JSON file; :raises IntegrityError: when it is not JSON, holds an invalid number, or nests too deeply."""
    return parse_json(path.read_bytes(), str(path))


def parse_json(data: bytes, name: str) -> Any:
    """Read JSON; :raises IntegrityError: as :func:`read_json`, with ``name`` for what holds it."""
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except ValueError as error:
        raise IntegrityError(f"{name} is damaged: it is not JSON ({error}).") from error
    except RecursionError:
        raise IntegrityError(f"{name} is damaged: it is nested without end.") from None


def read_of_kind(path: Path, kind: str, other: UsageError, hint: str) -> dict[str, Any] | None:
    """Read a JSON file in a folder that a user named; ``None`` where there is none.

    :param other: what to raise for a file that does not say that it is of this ``kind``.
    :raises UsageError: when it cannot be read; :raises IntegrityError: as :func:`read_json`, with that hint.
    """
    try:
        data = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}."
        raise UsageError(why, hint="Name a folder that you may read.") from error
    except IntegrityError as error:
        raise IntegrityError(error.message, hint=hint) from error
    if not isinstance(data, dict) or data.get("kind") != kind:
        raise other
    return data


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


_MOST_DOTS = 1000
"""tomllib takes memory that grows with the square of the parts of a dotted key: 100,000 are 40 GB."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; :raises UsageError: as :func:`parse_toml`; :raises FileNotFoundError: when it is not there."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Read TOML; :raises UsageError: when it is not TOML, with ``name`` and the place of the mistake."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415  (a depot hit without a project file reads no TOML)
    else:  # pragma: no cover  (Python 3.10)
        import tomli as tomllib  # noqa: PLC0415  # type: ignore[import-not-found,unused-ignore]

    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise UsageError(f"{name} is refused: a line has more than {_MOST_DOTS} dots.")
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:  # its own TOMLDecodeError, or that of a number of thousands of digits
        raise UsageError(f"{name} is not valid TOML: {error}.") from error
    except RecursionError as error:
        raise UsageError(f"{name} is refused: its values are nested too deeply.") from error
    return data


_HEAD = b'{"record":'
_TAIL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}')
_TAIL_LENGTH = len(b',"sha256":""}') + 64


def write_record(path: Path, data: Any) -> None:
    """Write data as a record, so that no reader and no crash ever sees a part of it."""
    body = canonical_json(data)
    write_atomic(path, b'%s%s,"sha256":"%s"}' % (_HEAD, body, hashlib.sha256(body).hexdigest().encode()))


def read_record(path: Path, schema: int | None = None) -> Any:
    """The data that :func:`write_record` wrote.

    :param schema: what its ``schema`` must be; :raises NewerError: for another, which another release wrote.
    """
    data = path.read_bytes()
    tail = _TAIL.fullmatch(data, max(0, len(data) - _TAIL_LENGTH))
    if tail is None or not data.startswith(_HEAD):
        raise IntegrityError(f"{path} is damaged: it does not hold a record.")
    body = data[len(_HEAD) : tail.start()]
    if hashlib.sha256(body).hexdigest().encode() != tail[1]:
        raise IntegrityError(f"{path} is damaged: its contents do not have the SHA-256 that it states.")
    record = parse_json(body, str(path))
    found = record.get("schema") if isinstance(record, dict) else None
    if schema is not None and found != schema:
        if type(found) is int:
            raise NewerError(f"{path} was written by another release of flashdepot, which this one does not read.")
        raise IntegrityError(f"{path} is damaged: it does not say its schema.")
    return record
