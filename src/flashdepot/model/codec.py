"""Data as bytes that are the same everywhere, and reading tables of files that anybody may have changed."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flashdepot.errors import UsageError

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


_T = TypeVar("_T")
_KINDS: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_SHOWN = 80


class Table:
    """A table of which every key must be read: :meth:`finish` complains about those that were not."""

    def __init__(self, data: Any, name: str = "") -> None:
        """:raises ValueError: when ``data`` is something else than a dictionary."""
        if not isinstance(data, dict):
            raise ValueError(f"{name.rstrip('.') or 'it'} is not a table")  # noqa: TRY004  (a value of a file)
        self._data: Mapping[str, Any] = data
        self._name = name
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def get(self, key: str) -> Any:
        """The value of a key as it is, ``None`` without one; it does not count as read."""
        return self._data.get(key)

    def take(self, key: str, kind: type[_T]) -> _T:
        """The value of a key; :raises ValueError: when it is missing or of another kind."""
        if key not in self._data:
            raise ValueError(f"{self._name}{key} is missing")
        self._read.add(key)
        value = self._data[key]
        if type(value) is not kind:  # a bool is an int, and is none here
            raise self.wrong(key, _KINDS[kind])
        return value

    def table(self, key: str) -> Table:
        """A table inside this one; :raises ValueError: when it is missing or none."""
        if key not in self:
            raise ValueError(f"[{self._name}{key}] is missing")
        value = self.take(key, dict)
        return Table(value, f"{self._name}{key}.")

    def tables(self, key: str) -> list[Table]:
        """A list of tables; :raises ValueError: when it is missing or holds something else."""
        return [Table(value, f"{self._name}{key}[{n}].") for n, value in enumerate(self.take(key, list))]

    def tables_by_name(self, key: str) -> dict[str, Table]:
        """A table of tables; :raises ValueError: when it is missing or holds something else."""
        return {name: Table(value, f"{self._name}{key}.{name}.") for name, value in self.take(key, dict).items()}

    def texts_by_name(self, key: str) -> dict[str, tuple[str, ...]]:
        """A table of lists of texts; :raises ValueError: when it is missing or holds something else."""
        inner = self.table(key)
        return {name: inner.texts(name) for name in self.take(key, dict)}

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; :raises ValueError: when it is missing or holds something else."""
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(key, "a list of texts")
        return tuple(values)

    def text_by_name(self, key: str) -> dict[str, str]:
        """A table of texts; :raises ValueError: when it is missing or holds something else."""
        values = self.take(key, dict)
        if not all(isinstance(value, str) for value in values.values()):
            raise self.wrong(key, "a table of texts")
        return dict(values)

    def digest(self, key: str) -> str:
        """A SHA-256 in hexadecimal; :raises ValueError: when it is missing or none."""
        value = self.take(key, str)
        if not is_digest(value):
            raise self.wrong(key, "a SHA-256")
        return value

    def quantity(self, key: str) -> float:
        """A number that is neither negative nor infinite; :raises ValueError: when it is missing or another value."""
        kind = int if type(self._data.get(key)) is int else float
        value = float(self.take(key, kind))
        if not 0 <= value < math.inf:
            raise self.wrong(key, "0 or more")
        return value

    def natural(self, key: str, default: int) -> int:
        """A number that is not negative; :raises ValueError: for another value."""
        value = self.take(key, int) if key in self else default
        if value < 0:
            raise self.wrong(key, "0 or more")
        return value

    def match(self, key: str, pattern: re.Pattern[str], what: str, default: str | None = None) -> str:
        """A text that is all matched by a pattern; :raises ValueError: for another value."""
        if default is not None and key not in self:
            return default
        value = self.take(key, str)
        if pattern.fullmatch(value) is None:
            raise self.wrong(key, what)
        return value

    def match_all(self, key: str, pattern: re.Pattern[str], what: str) -> list[str]:
        """A list of such texts, empty without the key; :raises ValueError: for another value."""
        values = self.take(key, list) if key in self else []
        if not all(isinstance(value, str) and pattern.fullmatch(value) for value in values):
            raise self.wrong(key, f"a list of texts, {what}")
        return values

    def convert(self, key: str, parse: Callable[[str], _T]) -> _T:
        """A text as something reads it; :raises ValueError: when that refuses it."""
        return self._parsed(key, self.take(key, str), parse)

    def convert_all(self, key: str, parse: Callable[[str], _T]) -> tuple[_T, ...]:
        """A list of texts as something reads them; :raises ValueError: when that refuses one."""
        return tuple(self._parsed(key, text, parse) for text in self.texts(key))

    def _parsed(self, key: str, text: str, parse: Callable[[str], _T]) -> _T:
        try:
            return parse(text)
        except UsageError as error:
            raise ValueError(f"{self._name}{key}: {error.message}") from error
        except ValueError as error:
            raise ValueError(f"{self._name}{key}: {error}") from error

    def wrong(self, key: str, expected: str) -> ValueError:
        """The complaint about a value."""
        found = repr(self._data.get(key))
        found = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."
        return ValueError(f"{self._name}{key} is {found}: expected {expected}")

    def finish(self) -> None:
        """Complain about keys that nobody has read; :raises ValueError: with the first of them."""
        if unknown := sorted(set(self._data) - self._read):
            raise ValueError(f"{self._name}{unknown[0]} is not a key of this file")
