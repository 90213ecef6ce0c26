"""Which classes a person's own sentence may be about, where no program's words are in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from flashdepot.diagnose.explain.machine import package_in
from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.rules import PACKAGE, SENTENCES, LogRule, filled
from flashdepot.diagnose.explain.source import is_code

_LONGEST = 600
"""Bytes of what is read as a sentence; a longer text is a log, of which a few words say little."""
_LINES = 4
_PRINTED = Pattern.parse(
    r"^No module named |^\W*(?:\S+ )?(?:\w+\.)*(?:\w*(?:Error|Exception)|(?i:error|warning|fatal|note|hint)|Caused by|\S+:\d+): "
    r"|^ERROR\b|^\s*(?:\$|[A-Z]:\\\S*>|Compiling) ?\S"
)
"""What only a program prints, or a prompt."""


def sentence_of(text: bytes) -> str:
    """What a person typed, or a title, where that is all of an input; empty for a log or source, and words about nothing that is known."""
    sentence = text.decode(errors="replace").strip()
    if len(text) > _LONGEST or sentence.count("\n") >= _LINES or _PRINTED.search(text):
        return ""
    lines = sentence.splitlines()
    return "" if all(is_code(line, b"") for line in lines) or not _notions_in(sentence) else sentence


def asked_in(sentence: str, rules: Iterable[LogRule]) -> Sequence[LogRule]:
    """The rules that have a row whose notions are all in a sentence, the longest row first; of a class one."""
    known = _notions_in(sentence)
    fits: dict[str, tuple[int, LogRule]] = {}
    for rule in rules:
        length = max((len(row.split()) for row in rule.asked if _is_in(row, known)), default=0)
        if length > fits.get(rule.id, (0, rule))[0]:
            fits[rule.id] = (length, rule)
    return [rule for _, rule in sorted(fits.values(), key=lambda fit: (-fit[0], fit[1].rank, fit[1].id))]


def _is_in(row: str, known: frozenset[str]) -> bool:
    """Whether all notions of a row are known, and none that stands behind a ``!``."""
    return all((word[1:] not in known) if word[0] == "!" else (word in known) for word in row.split())


def _notions_in(sentence: str) -> frozenset[str]:
    found = frozenset(name for name, pattern in _notions() if pattern.search(sentence.encode()))
    return found | {PACKAGE} if package_in(sentence) else found


@cache
def _notions() -> Sequence[tuple[str, Pattern]]:
    return [(name, Pattern.parse(filled(f"(?i){text}", SENTENCES.notions))) for name, text in SENTENCES.notions.items()]
