"""A piece of a log: which of its lines a rule matches, and what each match is worth. Decides, and reads nothing but the piece."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice

import msgspec

from flashdepot.diagnose.explain.hint import Line
from flashdepot.diagnose.explain.lines import Chunk, begin_of_line, end_of_line, strip_prefixes
from flashdepot.diagnose.explain.machine import Package
from flashdepot.diagnose.explain.passage import Passages, Voice
from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.rules import SENTENCES, LogRule
from flashdepot.diagnose.explain.source import is_shown, is_template
from flashdepot.diagnose.explain.steps import Scene, Step

LINE_CAP = 4096
"""Bytes of a line that are kept, around what was found in it."""

_WEIGHED = 50
"""How many lines of a piece a pattern is weighed in."""

_NEAR = 400
"""Bytes before and behind a match that may take it back: in a longer line, other sentences stand next to it."""

_LEVELS_END = 80
"""Where in a line a logger's level stands: what is only a warning does not say for certain why a command failed."""

_DOES_WITHOUT = Pattern.parse(SENTENCES.lines["does_without"])
_WARNS = re.compile(rb"(?:^|[\s\[(|])(?:WARN(?:ING)?|(?P<tells>INFO|DEBUG|TRACE))(?:\W|$)")
_ONLY_WARNS = Pattern.parse(SENTENCES.lines["only_warns"])
_SAYS_ERROR = re.compile(rb"(?i:error|exception|\bfailed)\b")
_IS_SUPPOSED = Pattern.parse(SENTENCES.lines["is_supposed"])
_IS_RAISED = re.compile(rb"\w(?:Error|Exception)\b|\b(?i:error)(?:\[\w+\])?:")
_BRANCH = re.compile("(?:\\s|\u2502)*(?:(?:\u251c|\u2570)\u2500\u25b6|[Cc]aused? by: |cause: )".encode())
"""How a line begins that uv prints of a tree of causes, the last of which is the reason of the others."""
_IS_TASK = re.compile(rb"(?i:failed|unable) to ")
"""How the name of a task begins that failed: in a tree of causes the line below says why."""
_GOES_ON = (b"[possible values", b"(choose from")
_NAMED = frozenset({"module", "package", "dist"})
_NO_NAMES = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "it",
        "its",
        "your",
        "you",
        "one",
        "some",
        "any",
        "all",
        "and",
        "or",
        "not",
        "no",
        "to",
        "of",
        "in",
        "is",
        "as",
        "please",
        "following",
    ]
)
"""Words of a sentence, which stand where a package's name may."""
NAMES_ERROR = re.compile(rb"[^\w#]*(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")


class _Weight(IntEnum):
    """What a match is worth: nothing, what a person tells or a logger warns of, what may be the cause, what is."""

    NOTHING = 0
    TELLS = 1
    SHOWS = 2
    PROVES = 3


class Hit(msgspec.Struct, frozen=True):
    """A rule that the log answers to, the first line that shows it, and the named groups of the match.

    One that is not certain stands on a rule's ``likely`` patterns, on what is absent, or on a line that only warns,
    supposes, quotes or shows source; one that is ``described`` on what a person wrote or a logger warned of. A ``title`` one
    stands in the title of a thread, which is about it. ``package`` is whose file or build it is about, ``step`` the part of
    the log that the line is in; ``or_else`` takes the place of the rule's.
    """

    rule: LogRule
    line: Line
    groups: Mapping[str, str]
    package: Package | None = None
    certain: bool = True
    described: bool = False
    likely: bool = False
    title: bool = False
    or_else: tuple[str, ...] = ()
    step: Step | None = None


class Piece(msgspec.Struct, frozen=True):
    """A piece of a log, its steps, the piece before it, and the patterns that may be in it."""

    chunk: Chunk
    scene: Scene
    before: bytes
    possible: set[Pattern]
    passages: Passages

    def first_hit(self, rule: LogRule, patterns: Sequence[Pattern], in_step: Sequence[Pattern] = ()) -> Hit | None:
        """The first line that a pattern matches; where several match it, the one that the rule names first counts."""
        kinds = ((pattern, strict) for strict, some in enumerate((patterns, in_step)) for pattern in some)
        sought = [(pattern, bool(strict)) for pattern, strict in kinds if pattern in self.possible]
        matches = [found for pattern, strict in sought if (found := self._heaviest(rule, pattern, in_step=strict))]
        if not matches:
            return None
        text = self.chunk.text
        return self._hit(rule, *min(matches, key=lambda match: (-match[0], end_of_line(text, match[1].end()))))

    def lines_with(self, pattern: Pattern) -> Iterator[re.Match[bytes]]:
        """What a pattern matches, in each line once."""
        end = 0
        while found := pattern.search(self.chunk.text, end):
            yield found
            end = end_of_line(self.chunk.text, found.end())

    def line_at(self, found: re.Match[bytes]) -> Line:
        """The line that has what was found, or of a long one what is around it."""
        chunk, end = self.chunk, found.end()
        begin, stop = begin_of_line(chunk.text, end), end_of_line(chunk.text, end)
        if stop - begin > LINE_CAP:
            begin = max(begin, found.start() - LINE_CAP // 2)
            stop = min(stop, begin + LINE_CAP)
        return Line(chunk.number(end), chunk.line(begin, stop))

    def whole_line_at(self, found: re.Match[bytes]) -> Line:
        """The line that has what was found, with the next one where it goes on there: after a colon, or with a list of values."""
        line = self.line_at(found)
        text, end = self.chunk.text, end_of_line(self.chunk.text, found.end())
        below = text[end:].lstrip(b"\n") if text[end - 1 : end] == b":" else text[end + 1 : end + LINE_CAP].lstrip()
        goes_on = text[end - 1 : end] == b":" or below.startswith(_GOES_ON)
        rest = strip_prefixes(below[: end_of_line(below, 0)][:LINE_CAP]) if goes_on else ""
        return Line(line.number, f"{line.text} {rest}".rstrip())

    def is_printed(self, found: re.Match[bytes]) -> bool:
        """Whether a program printed what was found, and no person wrote it."""
        in_step = self.scene.at(found.start()) is not None
        voice = self.passages.voice_of(*found.span(), in_step=in_step, sentence=False)
        return voice is Voice.PRINTED and not self.is_source(found)

    def repeats(self, rule: LogRule) -> bool:
        """Whether what a title says stands below it too, where the program's own line is."""
        below = end_of_line(self.chunk.text, 0)
        return any(pattern.search(self.chunk.text, below) for pattern in rule.patterns if pattern in self.possible)

    def before_any_step(self, rule: LogRule) -> Hit | None:
        """What a line matches that stands where the log has not said what runs, of patterns that want to know."""
        sought = ((pattern, pattern.search(self.chunk.text)) for pattern in rule.in_step if pattern in self.possible)
        early = ((pattern, found) for pattern, found in sought if found and self.scene.at(found.end()) is None)
        weighed = ((self._weigh(rule, pattern, found), found) for pattern, found in early)
        return next((self._hit(rule, *match) for match in weighed if match[0] > _Weight.TELLS), None)

    def _hit(self, rule: LogRule, weight: _Weight, found: re.Match[bytes]) -> Hit:
        text = self.chunk.text
        groups = _groups(found)
        for pattern in rule.details:
            if detail := pattern.search(self.before + text):
                groups = {**_groups(detail), **groups}
        line = self.line_at(found)
        return Hit(
            rule,
            line,
            groups,
            certain=weight is _Weight.PROVES,
            described=weight is _Weight.TELLS,
            title=weight is _Weight.PROVES and line.number == 1 and text.lstrip().startswith(b"#"),
            step=self.scene.at(found.start()),
        )

    def _heaviest(self, rule: LogRule, pattern: Pattern, *, in_step: bool) -> tuple[_Weight, re.Match[bytes]] | None:
        """The match that weighs most among as many as are worth looking at, the first of these."""
        text, best = self.chunk.text, None
        for found in islice(self.lines_with(pattern), _WEIGHED):
            raised = NAMES_ERROR.match(text, begin_of_line(text, found.end())) is not None
            if rule.takes(self.scene.at(found.end()), known=in_step, raised=raised):
                weight = self._weigh(rule, pattern, found)
                best = (weight, found) if weight > (best[0] if best else _Weight.NOTHING) else best
                if weight is _Weight.PROVES:
                    break
        return best

    def _weigh(self, rule: LogRule, pattern: Pattern, found: re.Match[bytes]) -> _Weight:
        """What a match is worth: a program printed it because something failed, and neither warns nor shows its source."""
        near, source = self._near(found), self.is_source(found)
        taken_back = any(other.search(near) for other in (_DOES_WITHOUT, *rule.ignore))
        if taken_back or (source and is_template(near)):
            return _Weight.NOTHING
        below = end_of_line(self.chunk.text, found.end()) + 1
        if _IS_TASK.match(found[0]) and not rule.warns and _BRANCH.match(self.chunk.text, below):
            return _Weight.TELLS
        in_step = self.scene.at(found.start()) is not None
        sentence = pattern.is_sentence and not in_step
        voice = Voice.PRINTED if source else self.passages.voice_of(*found.span(), in_step=in_step, sentence=sentence)
        if voice is not Voice.PRINTED:
            return _Weight.SHOWS if voice is Voice.DOUBTFUL else _Weight.TELLS
        begin = begin_of_line(self.chunk.text, found.end())
        level = _WARNS.search(self.chunk.text[begin : begin + _LEVELS_END])
        only_tells = _ONLY_WARNS.search(near) or (level and (level["tells"] or not _SAYS_ERROR.search(near)))
        if (level and level["tells"]) or ((level or only_tells) and not rule.warns):
            return _Weight.TELLS if only_tells else _Weight.SHOWS
        supposed = _IS_SUPPOSED.search(near) and not _IS_RAISED.search(near)
        return _Weight.PROVES if rule.warns or not (supposed or source) else _Weight.SHOWS

    def _near(self, found: re.Match[bytes]) -> bytes:
        text = self.chunk.text
        begin = begin_of_line(text, found.end())
        return text[max(begin, found.start() - _NEAR) : min(end_of_line(text, found.end()), found.end() + _NEAR)]

    def is_source(self, found: re.Match[bytes]) -> bool:
        """Whether the line is source that a traceback shows: a frame stands before it, or its number in it."""
        text = self.chunk.text
        begin = begin_of_line(text, found.end())
        before = max(begin_of_line(text, max(0, begin - 1)), begin - _NEAR)
        line = text[begin : min(end_of_line(text, begin), begin + LINE_CAP)]
        return not NAMES_ERROR.match(line) and is_shown(line, text[before:begin])


def _groups(found: re.Match[bytes]) -> dict[str, str]:
    groups = {name: value.decode(errors="replace") for name, value in found.groupdict().items() if value}
    return {name: value for name, value in groups.items() if name not in _NAMED or value.lower() not in _NO_NAMES}
