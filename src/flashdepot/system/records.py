"""Small files of JSON that carry the SHA-256 of their own contents, so that any change to a byte is found."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from flashdepot.errors import IntegrityError
from flashdepot.model.canonical import canonical_json
from flashdepot.system.files import parse_json, read_json, write_atomic

_HEAD = b'{"record":'
_TAIL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}')
_TAIL_LENGTH = len(b',"sha256":""}') + 64


def write_record(path: Path, data: Any) -> None:
    """Write data as a record, so that no reader and no crash ever sees a part of it."""
    body = canonical_json(data)
    write_atomic(path, b'%s%s,"sha256":"%s"}' % (_HEAD, body, hashlib.sha256(body).hexdigest().encode()))


def read_record(path: Path) -> Any:
    """Return the data that :func:`write_record` wrote.

    :raises FileNotFoundError: when it is not there.
    :raises IntegrityError: when one bit of it is another one, or it is no record.
    """
    data = path.read_bytes()
    tail = _TAIL.fullmatch(data, max(0, len(data) - _TAIL_LENGTH))
    if tail is None or not data.startswith(_HEAD):
        raise IntegrityError(f"{path} is damaged: it does not hold a record.")
    body = data[len(_HEAD) : tail.start()]
    if hashlib.sha256(body).hexdigest().encode() != tail[1]:
        raise IntegrityError(f"{path} is damaged: its contents do not have the SHA-256 that it states.")
    return parse_json(body, str(path))


def is_foreign(path: Path, schema: int) -> bool:
    """Whether another release of flashdepot wrote a record, one of another schema; the first ones were plain JSON.

    :raises IntegrityError: when it is damaged.
    """
    try:
        data = read_record(path)
    except IntegrityError:
        data = read_json(path)
    return isinstance(data, dict) and type(data.get("schema")) is int and data["schema"] != schema
