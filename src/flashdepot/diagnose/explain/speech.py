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
"""From which sums of weights on a person wrote a line: where one wrote that next to it, in any case, and also what it quotes."""

_LONG = 30
"""How many different words a line has that names and colons do not make a program's."""

_WEIGHTS = {word: int(weight) for weight, words in SENTENCES.voices.items() for word in words.split()}
_WORD = re.compile(r"\b[A-Za-z][a-z]*(?:'[a-z]+)?\b")
_QUOTED = re.compile(r"`+[^`\n]*`+|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")
_IDENTIFIER = re.compile(r"[A-Za-z]_[A-Za-z]|::|[/\\=(){}<>\[\]|]|\w\.\w|[a-z][A-Z]")
_ASKS = re.compile(r"\?\W*$")
_STOPS = re.compile(r"[a-z)]\.\s*$")
_GOES_ON = re.compile(r"[a-z)`]\. [A-Z]")
_TELLS = re.compile(r"\w: ")
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}[^\x00-\x7f]{4,}")
_OF_ONESELF = re.compile(r"(?:^|[\s(,*])I(?:'\w+)? [a-z]")
_ENUMERATED = re.compile(r"\s*\d{1,2}[.)] [A-Z]")
_HEADING = re.compile(r"\s*#+ \S")
_STATES = re.compile(
    r"(?:(?<![A-Za-z])[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)\b"
    r"|(?<![A-Za-z])(?i:error|fatal|warning|critical|failure)(?: [A-Z]+\d+)?\b\]?) ?(?:: ?|\[|$)|^\S+[:(]\d+|\bpanicked at |^(?i:error|fatal)\b[^.:]{0,40}: "
)
"""Where a program's own words begin: the name of an error and a colon, or a file and a line."""


class Voice(IntEnum):
    """Whose words a match is: a person's, a program's that a person quotes or that may be a person's, or a program's."""

    WRITTEN = 0
    DOUBTFUL = 1
    PRINTED = 2


def voice_of(text: bytes, start: int, stop: int) -> Voice:
    """Whose words these bytes of a log are.

    What follows an error's name is a program's, and so is what stands in quotation marks; a sentence around it says that
    a person quotes it. Of any other line its own words decide, and those next to it where these say little.
    """
    begin = text.rfind(b"\n", 0, stop) + 1
    end = _end_of_line(text, stop)
    before = text[max(begin, start - _READ) : start].decode(errors="ignore")
    found = text[start : min(stop, start + _READ)].decode(errors="ignore")
    line = before + found + text[stop : min(end, stop + _READ)].decode(errors="ignore")
    voice = _voice_in(line, len(before), len(before) + len(found))
    if voice is not None:
        return voice
    near = [_sum(one) for one in _neighbours(text, begin, end) if one.strip() and not _HEADING.match(one)]
    told, printed = any(one >= _WRITTEN for one in near), any(one < _DOUBTFUL for one in near)
    if _HEADING.match(line) or (told and printed) or (begin == 0 and end + 1 >= len(text)):
        return Voice.DOUBTFUL
    return Voice.PRINTED if printed else Voice.WRITTEN


def _voice_in(line: str, start: int, stop: int) -> Voice | None:
    """What the line says apart from the match, which a rule knows to be a program's; ``None`` where that is little."""
    if (stated := _stated(line, start, stop)) is not None:
        return Voice.DOUBTFUL if _sum(line[:stated].rstrip(" :")) >= _DOUBTFUL else Voice.PRINTED
    around = _apart_from(line, start, stop)
    if any(one.start() <= start and stop <= one.end() for one in _QUOTED.finditer(line)) and around < _RETOLD:
        return Voice.DOUBTFUL if around >= _DOUBTFUL else Voice.PRINTED
    if around >= _WRITTEN:
        return Voice.WRITTEN
    return None if around >= _DOUBTFUL or _HEADING.match(line) else Voice.PRINTED


def _stated(line: str, start: int, stop: int) -> int | None:
    """Where a program's words begin in a line, if that is before a match: at an error's name, or behind a colon."""
    begins = [found.start() for found in _STATES.finditer(line, 0, stop)]
    return begins[-1] if begins else start if line[:start].endswith(": ") else None


def _apart_from(line: str, start: int, stop: int) -> float:
    """How much a line speaks for a person; in what a rule knows to be a program's, articles and a few more words do not."""
    words = {word for word in _WORD.findall(line[start:stop].lower()) if _WEIGHTS.get(word, 0) > 1}
    told = sum(_WEIGHTS[word] for word in words) - _WRITTEN
    oneself = 4 * bool(_OF_ONESELF.search(line, start, stop))
    long = len(set(_WORD.findall(line))) >= _LONG
    return min(_sum(line, long=long), _sum(f"{line[:start]} {line[stop:]}", long=long)) + max(0, told) + oneself


def _sum(line: str, *, long: bool = False) -> float:
    """How much a line speaks for a person."""
    said = _QUOTED.sub(" ", line)
    words = set(_WORD.findall(said.lower()))
    total = sum(_WEIGHTS.get(word, 0) for word in words)
    total += 4 * bool(_OF_ONESELF.search(said)) + 5 * bool(_ENUMERATED.match(said))
    total += 6 * bool(_ASKS.search(said) or _IDEOGRAPHS.search(said)) + bool(_STOPS.search(said))
    total += bool(_GOES_ON.search(said)) - 6 * is_mark(strip_prefixes(line.encode()))
    if long or len(words) >= _LONG:
        return total
    return total - 2 * bool(_TELLS.search(said)) - min(4, sum(map(bool, map(_IDENTIFIER.search, said.split())))) / 2


def _neighbours(text: bytes, begin: int, end: int) -> tuple[str, str]:
    """The lines before and behind one; an empty line parts them."""
    before = text[max(text.rfind(b"\n", 0, max(0, begin - 1)) + 1, begin - _READ) : max(0, begin - 1)]
    behind = text[end + 1 : min(_end_of_line(text, end + 1), end + _READ)]
    return before.decode(errors="ignore"), behind.decode(errors="ignore")


def _end_of_line(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return end if end >= 0 else len(text)
