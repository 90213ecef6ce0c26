"""Who wrote a line of a log: a program because something failed, the author of source, or a person who tells of it.

Programs say what must be and what was expected, and leave out articles; persons write of themselves, of this and that,
and ask. What a word says for a person is data, ``voices`` of ``sentences.toml``: weights of a logistic regression, rounded.
The same words stand in source, in comments, guides and messages of commits; the lines around them are source or prose then.
"""

from __future__ import annotations

import re
from enum import IntEnum

import msgspec

from flashdepot.diagnose.explain.lines import strip_prefixes
from flashdepot.diagnose.explain.rules import SENTENCES
from flashdepot.diagnose.explain.source import is_code, is_comment, is_shown
from flashdepot.diagnose.explain.steps import is_mark

_READ = 600
"""Bytes before a match, of it and behind it that are read: a longer line has other sentences there."""

_AROUND = 6
"""Lines before and behind one that tell what it stands among."""

_PROMPT = re.compile(r"(?:\(\S+\) ?)*(?:[\w.-]+@[\w.-]+[:~ ][^$#%>]*)?[$%\u276f\u279c] \S|(?:PS )?[A-Z]:\\[^>]*> ?\S|>>> ")
"""What a command stands behind: the lines below are of its output."""
_FENCE = b"```"
_FEW = 3
"""Of fewer lines around it, nothing can be said of what a line stands among."""

_SENTENCE = 5
"""Plain words that a sentence has."""
_WRAPPED = range(46, 130)
"""How long a line is where the next one goes on with its sentence."""

_LOOKED_AT = 240
"""Bytes of such a line that are read."""

_DOUBTFUL, _WRITTEN, _RETOLD = 2, 4, 8
"""From which sums of weights on words in front quote an error, a person wrote a line, and also what it quotes."""

_WEIGHTS = {word: int(weight) for weight, words in SENTENCES.voices.items() for word in words.split()}
_WORD = re.compile(r"\b[A-Za-z][a-z]*(?:'[a-z]+)?\b")
_PLAIN = re.compile(r"(?<![\w./\\-])[A-Za-z][a-z']*(?![\w/\\(\[=.-]\w|[\w/\\(\[=])")
"""A word that is no name, path, number or key of a program."""
_QUOTED = re.compile(r"`+[^`\n]*`+|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")
_IDENTIFIER = re.compile(r"[A-Za-z]_[A-Za-z]|::|[/\\=(){}<>\[\]|]|\w\.\w|[a-z][A-Z]")
_ASKS = re.compile(r"\?\W*$")
_STOPS = re.compile(r"[a-z)]\.\s*$")
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}[^\x00-\x7f]{4,}")
_OF_ONESELF = re.compile(r"(?:^|[\s(,*])I(?:'\w+)? [a-z]")
_COLON = re.compile(r"\w: ")
_HEADING = re.compile(r"\s*#+ \S")
_ROW = re.compile(r"\s*\|(?:[^|\n]*\|){2,}\s*$")
_GOES_ON = re.compile(r"[a-z,)`'\"]\s*$")
_GOES_ON_AS = re.compile(r"\s*[a-z`'\"(]")
_RAISED = re.compile(r"(?:E +)?(?:\S+:\d+(?::\d+)?: )?(?:(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Warning)|(?:fatal |catastrophic )?error): \S")
_WHOLE = re.compile(r"\W*`[^`]+`\W*$")
_STATES = re.compile(
    r"(?:(?<![A-Za-z])[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)\b"
    r"|(?<![A-Za-z])(?i:error|fatal|warning|critical|failure)(?: [A-Z]+\d+)?\b\]?) ?(?:: ?|\[|$)|^\S+[:(]\d+|\bpanicked(?: at|:) |^(?i:error|fatal)\b[^.:]{0,40}: "
)
"""Where a program's own words begin: the name of an error and a colon, or a file and a line."""
_PROGRAMS = re.compile(
    r"(?:Caused by|[\"']?[a-z][\w.+-]*[\"']?): |[A-Z]{4,8}\W|\[?[A-Z] \S+:\d+\]|[\[(]?\d+[-:/]\d|[\[(]\w+[ =\w]*\d[\])]"
)
"""How a line begins that a program printed: with its name, a level, a place in its source, or a time."""


class Voice(IntEnum):
    """Whose words a match is: a person's, a program's that a person quotes or that may be a person's, or a program's."""

    WRITTEN = 0
    DOUBTFUL = 1
    PRINTED = 2


class _Kind(IntEnum):
    """What a line is by itself."""

    BLANK = 0
    PRINTED = 1
    PROSE = 2
    SOURCE = 3
    COMMAND = 4


class Speech(msgspec.Struct):
    """Who wrote what stands in a piece of a log."""

    text: bytes
    kinds: dict[int, _Kind] = {}

    def voice_of(self, start: int, stop: int, *, in_step: bool, sentence: bool) -> Voice:
        """Whose words these bytes are.

        What follows an error's name is a program's, and so is what stands in quotation marks; a sentence around it says that
        a person quotes it. Of any other line its own words decide, and in no step those of the lines around it.

        :param sentence: what was found are words that anybody may use, and no known program's: they must stand in a line
            that begins as a program's does, or be all that there is.
        """
        text = self.text
        begin, end = text.rfind(b"\n", 0, stop) + 1, _end_of_line(text, stop)
        before = text[max(begin, start - _READ) : start].decode(errors="ignore")
        found = text[start : min(stop, start + _READ)].decode(errors="ignore")
        behind = text[stop : min(end, stop + _READ)].decode(errors="ignore")
        line, heading = before + found + behind, _HEADING.match(before + found)
        alone, title = begin == 0 and end + 1 >= len(text), begin == 0 and heading is not None
        states = [one.start() for one in _STATES.finditer(line, 0, len(before) + len(found))]
        if not (alone or title) and self._is_among_others(begin, begins=bool(states), in_step=in_step):
            return Voice.WRITTEN
        if states or before.endswith(": "):
            quoting = line[: states[-1]] if states else before
            return Voice.DOUBTFUL if _sum(quoting.rstrip(" :")) >= _DOUBTFUL else Voice.PRINTED
        known = heading is not None and not _ASKS.search(line)
        if sentence and not (alone or known or any(map(_PROGRAMS.match, (line, strip_prefixes(line.encode()))))):
            return Voice.WRITTEN
        around = min(_sum(line), _sum(f"{before} {behind}"))
        quoted = (one.start() <= len(before) and len(before) + len(found) <= one.end() for one in _QUOTED.finditer(line))
        if around < _RETOLD and any(quoted):
            return Voice.DOUBTFUL if heading or around >= _DOUBTFUL else Voice.PRINTED
        if around >= _WRITTEN and not in_step:
            return Voice.WRITTEN
        return Voice.DOUBTFUL if heading or (alone and around >= _DOUBTFUL) else Voice.PRINTED

    def _is_among_others(self, begin: int, *, begins: bool, in_step: bool) -> bool:
        """Whether a line is of source, of a heading or a table in a page, or of a text of sentences.

        :param begins: it names an error as programs do.
        """
        line = self._line(begin)
        bare = strip_prefixes(line.encode())
        if _HEADING.match(line) or _ROW.match(line) or self._kind(begin) is _Kind.SOURCE:
            return True
        kinds = [self._kind(other) for other in self._around(begin)]
        if len(kinds) < _FEW:
            return False
        raised = _RAISED.match(bare) is not None
        source, prose = kinds.count(_Kind.SOURCE), kinds.count(_Kind.PROSE)
        if source > 1 and source * 5 >= len(kinds) * (3 if begins or raised else 2):
            return True
        if in_step or raised or _Kind.COMMAND in kinds:
            return False
        if self._flows(begin):
            return True
        if begins or _WHOLE.match(line) or any(map(_PROGRAMS.match, (line, bare))):
            return False
        return prose * 3 >= len(kinds)

    def _flows(self, begin: int) -> bool:
        """Whether a sentence goes on from the line before or to the next one."""
        line, end = self._line(begin), _end_of_line(self.text, begin)
        last, following = self.text.rfind(b"\n", 0, max(0, begin - 1)) + 1, end + 1
        return (begin > 0 and _goes_on(self._line(last), line)) or _goes_on(line, self._line(following))

    def _around(self, begin: int) -> list[int]:
        """Where the lines around one begin, without blank ones."""
        text, lines = self.text, []
        at = begin
        for _ in range(_AROUND):
            if at == 0 or text.startswith(_FENCE, at):
                break
            at = text.rfind(b"\n", 0, at - 1) + 1
            lines.append(at)
        at = begin
        for _ in range(_AROUND):
            at = _end_of_line(text, at) + 1
            if at >= len(text) or text.startswith(_FENCE, at):
                break
            lines.append(at)
        return [one for one in lines if self._kind(one) is not _Kind.BLANK]

    def _kind(self, begin: int) -> _Kind:
        if (kind := self.kinds.get(begin)) is None:
            kind = self.kinds[begin] = self._read(begin)
        return kind

    def _read(self, begin: int) -> _Kind:
        text = self.text
        line = self._line(begin).rstrip()
        if not line.strip() or (begin == 0 and _HEADING.match(line)):
            return _Kind.BLANK
        if _PROMPT.match(line):
            return _Kind.COMMAND
        last = text.rfind(b"\n", 0, max(0, begin - 1)) + 1
        if is_shown(line.encode(), text[max(last, begin - _LOOKED_AT) : begin]):
            return _Kind.PRINTED
        following = _end_of_line(text, begin) + 1
        comment = begin and is_comment(line) and text[following : following + 1] not in (b"\n", b"")
        if comment or is_code(strip_prefixes(line.encode())):
            return _Kind.SOURCE
        return _Kind.PROSE if _sum(line) >= 1 and len(_PLAIN.findall(line)) >= _SENTENCE else _Kind.PRINTED

    def _line(self, begin: int) -> str:
        return self.text[begin : min(_end_of_line(self.text, begin), begin + _LOOKED_AT)].decode(errors="ignore")


def _goes_on(line: str, following: str) -> bool:
    """Whether a sentence of many plain words goes on in the next line."""
    return (
        len(line) in _WRAPPED
        and _GOES_ON.search(line) is not None
        and _GOES_ON_AS.match(following) is not None
        and len(_PLAIN.findall(line)) > _SENTENCE
        and len(_PLAIN.findall(line)) * 2 > len(line.split())
    )


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
