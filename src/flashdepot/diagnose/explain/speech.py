"""Who wrote a line of a log: a program, or a person who tells of it.

Programs say what must be and what was expected, and leave out articles; persons write of themselves, of this and that,
and ask. What a word says for a person is data, ``voices`` of ``sentences.toml``: weights of a logistic regression, rounded.
"""

from __future__ import annotations

import re
from enum import IntEnum

from flashdepot.diagnose.explain.lines import strip_prefixes
from flashdepot.diagnose.explain.rules import SENTENCES
from flashdepot.diagnose.explain.steps import is_mark

_READ = 600
"""Bytes before a match, of it and behind it that are read: a longer line has other sentences there."""

_DOUBTFUL, _WRITTEN, _RETOLD = 2, 4, 8
"""From which sums of weights on words in front quote an error, a person wrote a line, and also what it quotes."""

_WEIGHTS = {word: int(weight) for weight, words in SENTENCES.voices.items() for word in words.split()}
_WORD = re.compile(r"\b[A-Za-z][a-z]*(?:'[a-z]+)?\b")
_QUOTED = re.compile(r"`+[^`\n]*`+|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")
_IDENTIFIER = re.compile(r"[A-Za-z]_[A-Za-z]|::|[/\\=(){}<>\[\]|]|\w\.\w|[a-z][A-Z]")
_ASKS = re.compile(r"\?\W*$")
_STOPS = re.compile(r"[a-z)]\.\s*$")
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}[^\x00-\x7f]{4,}")
_OF_ONESELF = re.compile(r"(?:^|[\s(,*])I(?:'\w+)? [a-z]")
_COLON = re.compile(r"\w: ")
_HEADING = re.compile(r"\s*#+ \S")
_STATES = re.compile(
    r"(?:(?<![A-Za-z])[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)\b"
    r"|(?<![A-Za-z])(?i:error|fatal|warning|critical|failure)(?: [A-Z]+\d+)?\b\]?) ?(?:: ?|\[|$)|^\S+[:(]\d+|\bpanicked(?: at|:) |^(?i:error|fatal)\b[^.:]{0,40}: "
)
"""Where a program's own words begin: the name of an error and a colon, or a file and a line."""
_PROGRAMS = re.compile(
    r"(?:Caused by|hint|[\"']?[\w.+-]+[\"']?): |[A-Z]{4,8}\W|[A-Z] \S+:\d+\]|[\[(]?\d+[-:/]\d|[\[(]\w+[ =\w]*\d[\])]"
)
"""How a line begins that a program printed: with its name, a level, a place in its source, or a time."""


class Voice(IntEnum):
    """Whose words a match is: a person's, a program's that a person quotes or that may be a person's, or a program's."""

    WRITTEN = 0
    DOUBTFUL = 1
    PRINTED = 2


def voice_of(text: bytes, start: int, stop: int, *, sentence: bool) -> Voice:
    """Whose words these bytes of a log are.

    What follows an error's name is a program's, and so is what stands in quotation marks; a sentence around it says that
    a person quotes it. Of any other line its own words decide.

    :param sentence: what was found are words that anybody may use, and no known program's: they must stand in a line
        that begins as a program's does, or be all that there is.
    """
    begin = text.rfind(b"\n", 0, stop) + 1
    end = _end_of_line(text, stop)
    before = text[max(begin, start - _READ) : start].decode(errors="ignore")
    found = text[start : min(stop, start + _READ)].decode(errors="ignore")
    behind = text[stop : min(end, stop + _READ)].decode(errors="ignore")
    line, heading = before + found + behind, _HEADING.match(before + found)
    states = [one.start() for one in _STATES.finditer(line, 0, len(before) + len(found))]
    if states or before.endswith(": "):
        quoting = line[: states[-1]] if states else before
        return Voice.DOUBTFUL if _sum(quoting.rstrip(" :")) >= _DOUBTFUL else Voice.PRINTED
    alone = begin == 0 and end + 1 >= len(text)
    known = heading is not None and not _ASKS.search(line)
    if sentence and not (alone or known or any(map(_PROGRAMS.match, (line, strip_prefixes(line.encode()))))):
        return Voice.WRITTEN
    around = min(_sum(line), _sum(f"{before} {behind}"))
    quoted = (one.start() <= len(before) and len(before) + len(found) <= one.end() for one in _QUOTED.finditer(line))
    if around < _RETOLD and any(quoted):
        return Voice.DOUBTFUL if heading or around >= _DOUBTFUL else Voice.PRINTED
    if around >= _WRITTEN:
        return Voice.WRITTEN
    return Voice.DOUBTFUL if heading or (alone and around >= _DOUBTFUL) else Voice.PRINTED


def _sum(line: str) -> float:
    """How much a line speaks for a person."""
    said = _QUOTED.sub(" ", line)
    total: float = sum(_WEIGHTS.get(word, 0) for word in set(_WORD.findall(said.lower())))
    total += 6 * bool(_ASKS.search(said) or _IDEOGRAPHS.search(said)) + 4 * bool(_OF_ONESELF.search(said))
    total += bool(_STOPS.search(said)) - 2 * bool(_COLON.search(said))
    total -= min(2, sum(map(bool, map(_IDENTIFIER.search, said.split())))) / 2
    return total - 6 * is_mark(strip_prefixes(line.encode()))


def _end_of_line(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return end if end >= 0 else len(text)
