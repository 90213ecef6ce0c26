"""Which rules a log answers to. Decides, and reads nothing but the lines it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashdepot.doctor.explain.lines import Chunk, strip_prefixes
from flashdepot.doctor.explain.pattern import Pattern
from flashdepot.doctor.explain.rules import LogRule
from flashdepot.doctor.explain.texts import Texts

LINE_CAP = 4096
"""Bytes of a line that are looked at together; of a longer line, this many around a mark."""

EARLIEST = 5
"""How many of the first lines that state an error are kept, for logs that no rule knows."""

_ERROR_MARKS = (
    "error",
    "fatal",
    "panic",
    "fail",
    "traceback",
    "undefined",
    "killed",
    "not found",
    "cannot",
    "lnk",
    "no such",
    "denied",
    "refused",
    "unable",
    "not recognized",
)
_FOREIGN_ERROR_MARKS = ("fehler", "erreur", "ошибк", "错误", "錯誤", "エラー", "오류", "erro")
_STATES_ERROR = Pattern.parse(
    r"(?i)(?:^|[^\pL\w/.-])(?:error|fatal|panic(?:ked)?|failed|Fehler|erreur|ошибка|错误|錯誤|エラー|오류|erro)"
    r"(?:$|[^\pL\w/=\s-]|\s+(?:$|[^=\s]))"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|\b(?:C|LNK|MSB|D)\d{4}:|\bE\d{4}\]|undefined (?:reference|symbol)"
    r"|command not found|\bcannot (?:open|find|import)|\bno such file\b|\bnot found\b|permission denied"
    r"|connection refused|\bunable to\b|not recognized|^Killed\b",
    memory=1 << 23,
)
_NO_ERROR = Pattern.parse(r"(?i)\b(?:0|no) (?:errors?|failed)\b|\bwarning\b|^(?:I|INFO|DEBUG)\b|^\s*(?:raise|except)\b")
_TORCH_VERSION = re.compile(rb"torch(?:\.__version__)?(?: version)?\s?(?:==|=|:|-)?\s*['\"]?v?(\d+\.\d+)")


@dataclass(frozen=True)
class Line:
    """A line of a log: its number from 1, and its text without prefixes."""

    number: int
    text: str


@dataclass(frozen=True)
class Hit:
    """A rule that the log answers to, the first line that shows it, and the named groups of the match.

    One that is not proven stands on a rule's ``likely`` patterns.
    """

    rule: LogRule
    line: Line
    groups: Mapping[str, str]
    proven: bool = True


@dataclass(frozen=True)
class RuleOutcome:
    """What was found: hits with causes first, the earliest lines that state an error, and the torch that is named."""

    hits: tuple[Hit, ...]
    errors: tuple[Line, ...]
    torch: str = ""


def match(rules: Sequence[LogRule], chunks: Iterable[Chunk]) -> RuleOutcome:
    """Go through a log once and return what it answers to."""
    search = _Search(rules)
    for chunk in chunks:
        search.look_at(chunk)
    return search.outcome()


@dataclass
class _Search:
    rules: Sequence[LogRule]
    found: dict[str, Hit] = field(default_factory=dict)
    suggested: dict[str, Hit] = field(default_factory=dict)
    errors: list[Line] = field(default_factory=list)
    torch: str = ""

    def __post_init__(self) -> None:
        self._open = list(self.rules)
        self._seen: set[str] = set()
        texts = {text for rule in self.rules for text in rule.marks + rule.context + rule.unless}
        self._texts = Texts(texts.union(_ERROR_MARKS, _FOREIGN_ERROR_MARKS))

    def look_at(self, chunk: Chunk) -> None:
        present = self._texts.present_in(chunk.lowered)
        self._seen |= present
        lines = _Lines(chunk)
        for rule in tuple(self._open):
            marks = [mark for mark in rule.marks if mark in present]
            if marks and (hit := _first_hit(rule, rule.patterns, lines, marks)):
                self.found[rule.id] = hit
                self._open.remove(rule)
            elif marks and rule.id not in self.suggested and (hit := _first_hit(rule, rule.likely, lines, marks)):
                self.suggested[rule.id] = replace(hit, proven=False)
        if len(self.errors) < EARLIEST:
            self._keep_errors(lines, [mark for mark in _ERROR_MARKS + _FOREIGN_ERROR_MARKS if mark in present])
        if not self.torch and (found := _TORCH_VERSION.search(chunk.lowered)):
            self.torch = found[1].decode()

    def outcome(self) -> RuleOutcome:
        hits = [hit for hit in self.found.values() if self._holds(hit.rule)]
        hits = hits or [hit for hit in self.suggested.values() if self._holds(hit.rule)]
        hidden = frozenset[str]().union(*(hit.rule.hides for hit in hits))
        hits = [hit for hit in hits if hit.rule.id not in hidden]
        hits.sort(key=lambda hit: (hit.rule.rank, hit.line.number, hit.rule.id))
        return RuleOutcome(tuple(hits), tuple(self.errors), self.torch)

    def _holds(self, rule: LogRule) -> bool:
        return (not rule.context or not self._seen.isdisjoint(rule.context)) and self._seen.isdisjoint(rule.unless)

    def _keep_errors(self, lines: _Lines, marks: Sequence[str]) -> None:
        for place in lines.having(marks):
            text = lines.text(place)
            if _STATES_ERROR.search(text) and not _NO_ERROR.search(text):
                self.errors.append(lines.line(place))
                if len(self.errors) == EARLIEST:
                    return


class _Lines:
    """The lines of a chunk, found by what they have and taken out only when somebody asks."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._places: dict[str, tuple[slice, ...]] = {}
        self._texts: dict[int, str] = {}

    def text(self, place: slice) -> str:
        """A line without prefixes."""
        start: int = place.start
        if start not in self._texts:
            self._texts[start] = strip_prefixes(self._chunk.text[place].decode(errors="replace"))
        return self._texts[start]

    def line(self, place: slice) -> Line:
        """A line with its number, which is counted anew each time."""
        return Line(self._chunk.first + self._chunk.text.count(b"\n", 0, place.start), self.text(place))

    def having(self, marks: Sequence[str]) -> list[slice]:
        """Where the lines are that have one of these lower-case texts, from the first to the last."""
        for mark in marks:
            if mark not in self._places:
                self._places[mark] = tuple(self._find(mark.encode()))
        if len(marks) == 1:
            return list(self._places[marks[0]])
        places = {place.start: place for mark in marks for place in self._places[mark]}
        return [places[start] for start in sorted(places)]

    def _find(self, mark: bytes) -> Iterator[slice]:
        lowered = self._chunk.lowered
        found = lowered.find(mark)
        while found >= 0:
            start = lowered.rfind(b"\n", 0, found) + 1
            end = lowered.find(b"\n", found)
            end = end if end >= 0 else len(lowered)
            if end - start > LINE_CAP:
                start = max(start, found - LINE_CAP // 2)
                end = min(end, start + LINE_CAP)
            yield slice(start, end)
            found = lowered.find(mark, max(end, found + 1))


def _first_hit(rule: LogRule, patterns: Sequence[Pattern], lines: _Lines, marks: Sequence[str]) -> Hit | None:
    """The first line that a pattern matches; where several match it, the one that the rule names first counts."""
    if not patterns:
        return None
    places = lines.having(marks)
    text = "\n".join(lines.text(place) for place in places)
    matches = [(text.count("\n", 0, found.start()), found) for pattern in patterns if (found := pattern.search(text))]
    if not matches:
        return None
    index, found = min(matches, key=lambda match: match[0])
    groups = {name: value for name, value in found.groupdict().items() if value}
    return Hit(rule, lines.line(places[index]), groups)
