"""What stands around a line of a log, and so who wrote it: a program because something failed, a person, or nobody here.

A cause is claimed only from a program's own line. The same words stand in source, comments, guides, messages of commits
and stories; there the lines around are source or sentences, or the line is a heading or a row of a table.

Programs say what must be and what was expected, and leave out articles; persons write of themselves, of this and that,
and ask. What a word says for a person is data, ``voices`` of ``sentences.toml``: weights of a logistic regression, rounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import IntEnum

import msgspec

from flashdepot.diagnose.explain.lines import begin_of_line, end_of_line, strip_prefixes
from flashdepot.diagnose.explain.rules import SENTENCES
from flashdepot.diagnose.explain.source import is_code, is_comment, is_shown

_READ = 600
"""Bytes before a match, of it and behind it that are read: a longer line has other sentences there."""

_AROUND, _FEW = 6, 3
"""Lines before and behind one that tell what it stands among, and of how many in all nothing can be said."""

_LOOKED_AT = 240
"""Bytes of such a line that are read."""

_DOUBTFUL, _WRITTEN, _RETOLD = 2, 4, 8
"""From which sums of weights on words in front quote an error, a person wrote a line, and also what it quotes."""

_FENCE = b"```"
_FENCES = re.compile(rb"^[ >]*```", re.MULTILINE)
_HEADING = re.compile(r"\s*#+ \S")
_ROW = re.compile(r"\s*\|(?:[^|\n]*\|){2,}\s*$")
_PROMPT = re.compile(
    r"(?:\([^\s()]+\) ?)*(?:[\w.-]+@[\w.-]+[:~ ][^$#%>]*)?[$%\u276f\u279c] \S|(?:PS )?[A-Z]:\\[^>]*> ?\S|>>> "
)
_RAISED = re.compile(
    r"(?:E +)?(?:\S+:\d+(?::\d+)?: )?(?:(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Warning)|(?:[a-z_]\w*\.)+[A-Z]\w+|(?:fatal |catastrophic )?error): \S"
)
"""A line that begins with an error's name, and behind the name's colon says more."""
_STATES = re.compile(
    r"(?:(?<![A-Za-z])[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)\b\]?"
    r"|(?<![A-Za-z])(?i:error|fatal|warning|critical|failure)(?: [A-Z]+\d+)?\b\]?) ?(?:: ?|\[|$)|^\S+[:(]\d+|\bpanicked(?: at|:) |^(?i:error|fatal)\b[^.:]{0,40}: "
)
"""Where a program's own words begin: the name of an error and a colon, or a file and a line."""
_PROGRAMS = re.compile(
    r"(?:Caused by|[\"']?[a-z][\w.+-]*[\"']?): |[A-Z]{4,8}\W|.*\[(?:Errno|WinError) -?\d+\]|\[?[A-Z] \S+:\d+\]|[\[(]?\d+[-:/]\d|[\[(]\w+[ =\w]*\d[\])]"
    r"|={5,} \S|[A-Z][\w ]+ \(core dumped\)"
)
"""How a line begins that a program printed: with its name, a level, a place in its source, or a time."""

_QUOTED = re.compile(r"`+[^`\n]*`+|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")

_PLAIN_WORDS = 5
"""Plain words that a sentence has."""

_WEIGHTS = {word: int(weight) for weight, words in SENTENCES.voices.items() for word in words.split()}
_WORD = re.compile(r"\b[A-Za-z][a-z]*(?:'[a-z]+)?\b")
_PLAIN = re.compile(r"(?<![\w./\\-])[A-Za-z][a-z']*(?![\w/\\(\[=.-]\w|[\w/\\(\[=])")
"""A plain word: not a name, path, number or key of a program."""
_IDENTIFIER = re.compile(r"[A-Za-z]_[A-Za-z]|::|[/\\=(){}<>\[\]|]|\w\.\w|[a-z][A-Z]")
_ASKS = re.compile(r"\?\W*$")
_CHANGES = re.compile(r" \(#\d+\)\s*$")
"""How the title of a commit ends."""
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}[^\x00-\x7f]{4,}")
_OF_ONESELF = re.compile(r"(?:^|[\s(,*])I(?:'\w+)? [a-z]")
_STOPS = re.compile(r"[a-z)]\.\s*$")
_COLON = re.compile(r"\w: ")


class Voice(IntEnum):
    """Whose words a match is: a person's or the source's, a program's that a person quotes or that may be a person's, or a program's."""

    WRITTEN = 0
    DOUBTFUL = 1
    PRINTED = 2


class _Kind(IntEnum):
    """What a line is by itself."""

    BLANK = 0
    OUTPUT = 1
    SENTENCE = 2
    SOURCE = 3
    COMMAND = 4


class Passages(msgspec.Struct):
    """A piece of a log, and what its lines are, as far as somebody asked."""

    text: bytes
    kinds: dict[int, _Kind] = {}
    fences: list[int] | None = None

    def voice_of(self, start: int, stop: int, *, in_step: bool, sentence: bool) -> Voice:
        """Whose words these bytes are.

        What follows an error's name is a program's, and so is what stands in quotation marks; a sentence around it says that
        a person quotes it. Of any other line its own words decide.

        :param sentence: what was found are words that anybody may use, and no known program's: they must stand in a line
            that begins as a program's does, or be all that there is.
        """
        text = self.text
        begin, end = begin_of_line(text, stop), end_of_line(text, stop)
        before = text[max(begin, start - _READ) : start].decode(errors="ignore")
        found = text[start : min(stop, start + _READ)].decode(errors="ignore")
        behind = text[stop : min(end, stop + _READ)].decode(errors="ignore")
        line, heading = before + found + behind, _HEADING.match(before + found) is not None
        states = [one.start() for one in _STATES.finditer(line, 0, len(before) + len(found))]
        alone, title = begin == 0 and end + 1 >= len(text), begin == 0 and heading
        inside = (one.span() for one in _QUOTED.finditer(line))
        quoted = any(first <= len(before) and len(before) + len(found) <= last for first, last in inside)
        if not (alone or title) and self._is_among_others(begin, states=bool(states), in_step=in_step):
            said = strip_prefixes(line.lstrip(" #/*").encode())
            by_person = quoted and not self._is_in_source(begin, states=bool(states))
            raised = (_RAISED.match(said) is not None or by_person) and not _ROW.match(self._line(begin))
            return Voice.DOUBTFUL if raised else Voice.WRITTEN
        if states or before.endswith(": "):
            quoting = line[: states[-1]] if states else before
            return Voice.DOUBTFUL if _personal(quoting.rstrip(" :")) >= _DOUBTFUL else Voice.PRINTED
        if sentence and not (alone or (heading and not _asks(line)) or _is_programs(line)):
            return Voice.WRITTEN
        around = min(_personal(line), _personal(f"{before} {behind}"))
        if around >= (_RETOLD if quoted else _WRITTEN) and not in_step:
            return Voice.DOUBTFUL if _is_programs(line) and not heading else Voice.WRITTEN
        return Voice.DOUBTFUL if heading or ((alone or quoted) and around >= _DOUBTFUL) else Voice.PRINTED

    def _is_among_others(self, begin: int, *, states: bool, in_step: bool) -> bool:
        """Whether a line is of source, of a page's headings and tables, or of a text of sentences.

        :param states: it names an error as programs do.
        """
        line = self._line(begin)
        if _HEADING.match(line) or _ROW.match(line) or self._kind(begin) is _Kind.SOURCE:
            return True
        kinds, raised = self._kinds_around(begin), self._is_raised(begin)
        if _is_source(kinds, errs=states or raised):
            return True
        if len(kinds) < _FEW or in_step or raised or _Kind.COMMAND in kinds or self._is_fenced(begin):
            return False
        sentences = kinds.count(_Kind.SENTENCE) * 3 >= len(kinds)
        return sentences and not (states or _is_programs(line))

    def _is_in_source(self, begin: int, *, states: bool) -> bool:
        """Whether a line is source, or so many around it are."""
        errs = states or self._is_raised(begin)
        return self._kind(begin) is _Kind.SOURCE or _is_source(self._kinds_around(begin), errs=errs)

    def _is_raised(self, begin: int) -> bool:
        return _RAISED.match(strip_prefixes(self._line(begin).encode())) is not None

    def _kinds_around(self, begin: int) -> list[_Kind]:
        return [kind for kind in map(self._kind, self._around(begin)) if kind is not _Kind.BLANK]

    def _is_fenced(self, begin: int) -> bool:
        """Whether a line stands between fences, where nobody writes sentences."""
        if self.fences is None:
            self.fences = [one.start() for one in _FENCES.finditer(self.text)]
        return bisect_right(self.fences, begin) % 2 == 1

    def _around(self, begin: int) -> list[int]:
        """Where the lines around one begin, up to the fences of a quotation."""
        lines, at = [], begin
        for _ in range(_AROUND):
            if at == 0 or self.text.startswith(_FENCE, at):
                break
            at = self._before(at)
            lines.append(at)
        at = begin
        for _ in range(_AROUND):
            at = end_of_line(self.text, at) + 1
            if at >= len(self.text) or self.text.startswith(_FENCE, at):
                break
            lines.append(at)
        return lines

    def _kind(self, begin: int) -> _Kind:
        if (kind := self.kinds.get(begin)) is None:
            kind = self.kinds[begin] = self._look(begin)
        return kind

    def _look(self, begin: int) -> _Kind:
        line = self._line(begin).rstrip()
        if not line.strip() or (begin == 0 and _HEADING.match(line)):
            return _Kind.BLANK
        if _PROMPT.match(line):
            return _Kind.COMMAND
        before = self.text[max(self._before(begin), begin - _LOOKED_AT) : begin].rstrip()
        if is_shown(line.encode(), before):
            return _Kind.OUTPUT
        following = end_of_line(self.text, begin) + 1
        comment = begin and is_comment(line) and self.text[following : following + 1] not in (b"\n", b"")
        if comment or is_code(strip_prefixes(line.encode()), before):
            return _Kind.SOURCE
        return _Kind.SENTENCE if _is_sentence(line) else _Kind.OUTPUT

    def _line(self, begin: int) -> str:
        return self.text[begin : min(end_of_line(self.text, begin), begin + _LOOKED_AT)].decode(errors="ignore")

    def _before(self, begin: int) -> int:
        """Where the line before begins."""
        return begin_of_line(self.text, max(0, begin - 1))


def _is_source(kinds: list[_Kind], *, errs: bool) -> bool:
    """Whether lines of these kinds are source: more of them where one names an error, as programs do."""
    source = kinds.count(_Kind.SOURCE)
    return len(kinds) >= _FEW and source > 1 and source * 5 >= len(kinds) * (3 if errs else 2)


def _is_programs(line: str) -> bool:
    """Whether a line begins as a program's does."""
    return any(map(_PROGRAMS.match, (line, strip_prefixes(line.encode()))))


def _personal(line: str) -> float:
    """The sum of the weights of a line's own words, those of what it quotes left out: usually below 2 for a program's."""
    said = _QUOTED.sub(" ", line)
    total: float = sum(_WEIGHTS.get(word, 0) for word in set(_WORD.findall(said.lower())))
    total += 6 * bool(_ASKS.search(said) or _IDEOGRAPHS.search(said) or _CHANGES.search(said)) + 4 * bool(
        _OF_ONESELF.search(said)
    )
    total += bool(_STOPS.search(said)) - 2 * bool(_COLON.search(said))
    return total - min(2, sum(map(bool, map(_IDENTIFIER.search, said.split())))) / 2


def _asks(line: str) -> bool:
    """Whether a line is a question."""
    return _ASKS.search(line) is not None


def _is_sentence(line: str) -> bool:
    """Whether a person wrote a line of several words."""
    return line.count(" ") >= _PLAIN_WORDS - 1 and len(_PLAIN.findall(line)) >= _PLAIN_WORDS and _personal(line) >= 1
