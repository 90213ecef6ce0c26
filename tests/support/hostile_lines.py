"""Lines that a regular expression almost matches, made from its own literals and classes, again and again."""

from __future__ import annotations

import random
import string
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as sre_parse
else:
    import sre_parse

_CLASSES = {"DIGIT": "1", "WORD": "a", "SPACE": " ", "NOT_DIGIT": "a", "NOT_WORD": "-", "NOT_SPACE": "a"}


def hostile_lines(pattern: str, length: int) -> list[str]:
    """Lines of that many characters: each run of up to three parts, and each beginning, repeated; then random mixtures."""
    parts = [part for part in _parts(sre_parse.parse(pattern.replace(r"\pL", "[a-z]"))) if part != "\n"]
    runs = {"".join(parts[at : at + count]) for at in range(len(parts)) for count in (1, 2, 3)} | set(accumulate(parts))
    lines = {_repeated(run, length) for run in runs}
    chance = random.Random(pattern)
    lines |= {_repeated("".join(chance.choices(parts, k=length)), length) for _ in range(3)}
    return sorted(lines)


def _repeated(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


def _parts(tree: Any) -> list[str]:
    parts: list[str] = []
    literal = ""
    for operation, argument in tree:
        if str(operation) == "LITERAL":
            literal += chr(argument)
            continue
        parts += [literal, *_of(str(operation), argument)]
        literal = ""
    return [part for part in (*parts, literal) if part]


def _of(operation: str, argument: Any) -> Iterator[str]:
    if operation == "IN":
        yield _member(argument)
    elif operation == "ANY":
        yield "a"
    elif operation == "NOT_LITERAL":
        yield "b" if argument == ord("a") else "a"
    elif operation == "BRANCH":
        for branch in argument[1]:
            yield from _parts(branch)
    elif operation == "SUBPATTERN":
        yield from _parts(argument[-1])
    elif operation in {"MAX_REPEAT", "MIN_REPEAT"}:
        least, _, repeated = argument
        inner = _parts(repeated)
        yield "".join(inner) * max(1, least)
        yield from inner


def _member(items: Any) -> str:
    """A character of a class."""
    if str(items[0][0]) == "NEGATE":
        excluded = {character for item in items[1:] for character in _characters(*item)}
        return next((c for c in "ax1.-_ /!" if c not in excluded), "é")
    return next(iter(_characters(*items[0])))


def _characters(operation: Any, argument: Any) -> list[str]:
    if str(operation) == "LITERAL":
        return [chr(argument)]
    if str(operation) == "RANGE":
        return [chr(code) for code in range(argument[0], argument[1] + 1)]
    name = str(argument).removeprefix("CATEGORY_")
    members = {"DIGIT": string.digits, "WORD": string.ascii_letters + string.digits + "_", "SPACE": string.whitespace}
    return list(members.get(name, _CLASSES[name]))
