"""Which rules a log answers to. Decides, and reads nothing but the lines it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashdepot.doctor.explain.lines import Chunk, strip_prefixes
from flashdepot.doctor.explain.rules import Rule

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
_STATES_ERROR = re.compile(
    r"(?<![\w/.-])(?:error|fatal|panic(?:ked)?|failed|Fehler|erreur|ошибка|错误|錯誤|エラー|오류|erro)(?![\w/-])(?!\s*=)"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|\b(?:C|LNK|MSB|D)\d{4}:|\bE\d{4}\]|undefined (?:reference|symbol)"
    r"|command not found|\bcannot (?:open|find|import)|\bno such file\b|\bnot found\b|permission denied|connection refused|\bunable to\b|not recognized|^Killed\b",
    re.IGNORECASE,
)
_NO_ERROR = re.compile(
    r"\b(?:0|no) (?:errors?|failed)\b|\bwarning\b|^(?:I|INFO|DEBUG)\b|^\s*(?:raise|except)\b", re.IGNORECASE
)
_TORCH_VERSION = re.compile(
    r"(?<![\w+])(?:py)?torch(?:\.__version__)?(?: version)?\s?(?:==|=|:|-)?\s*['\"]?v?(\d+\.\d+)(?:\.\d+)?",
    re.IGNORECASE,
)


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

    rule: Rule
    line: Line
    groups: Mapping[str, str]
    proven: bool = True


@dataclass(frozen=True)
class Outcome:
    """What was found: hits with causes first, the earliest lines that state an error, and the torch that is named."""

    hits: tuple[Hit, ...]
    errors: tuple[Line, ...]
    torch: str = ""


def match(rules: Sequence[Rule], chunks: Iterable[Chunk]) -> Outcome:
    """Go through a log once and return what it answers to."""
    search = _Search(rules)
    for chunk in chunks:
        search.look_at(chunk)
    return search.outcome()


@dataclass
class _Search:
    rules: Sequence[Rule]
    found: dict[str, Hit] = field(default_factory=dict)
    suggested: dict[str, Hit] = field(default_factory=dict)
    errors: list[Line] = field(default_factory=list)
    torch: str = ""

    def __post_init__(self) -> None:
        self._open = list(self.rules)
        self._seen: set[str] = set()
        texts = {text for rule in self.rules for text in rule.marks + rule.context + rule.unless}
        self._longest_words = {text: max(text.split(), key=len) for text in texts}

    def look_at(self, chunk: Chunk) -> None:
        lowered = "".join(chunk.lines).lower()
        present = self._present(lowered)
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
            self._keep_errors(lines, lowered)
        if not self.torch and "torch" in lowered:
            self.torch = next((m[1] for i in lines.having(["torch"]) if (m := _TORCH_VERSION.search(lines[i]))), "")

    def _present(self, lowered: str) -> set[str]:
        """Which texts of the rules are in a chunk.

        Logs repeat themselves: a text is looked for only if its longest word is among the chunk's different words.
        """
        words = "\n".join(set(lowered.split()))
        likely = {word for word in set(self._longest_words.values()) if word in words}
        return {text for text, word in self._longest_words.items() if word in likely and text in lowered}

    def outcome(self) -> Outcome:
        hits = [hit for hit in self.found.values() if self._holds(hit.rule)]
        hits = hits or [hit for hit in self.suggested.values() if self._holds(hit.rule)]
        hidden = frozenset[str]().union(*(hit.rule.hides for hit in hits))
        hits = [hit for hit in hits if hit.rule.id not in hidden]
        hits.sort(key=lambda hit: (hit.rule.rank, hit.line.number, hit.rule.id))
        return Outcome(tuple(hits), tuple(self.errors), self.torch)

    def _holds(self, rule: Rule) -> bool:
        return (not rule.context or not self._seen.isdisjoint(rule.context)) and self._seen.isdisjoint(rule.unless)

    def _keep_errors(self, lines: _Lines, lowered: str) -> None:
        marks = [mark for mark in _ERROR_MARKS + _FOREIGN_ERROR_MARKS if mark in lowered]
        for index in lines.having(marks) if marks else ():
            text = lines[index]
            if _STATES_ERROR.search(text) and not _NO_ERROR.search(text):
                self.errors.append(Line(lines.chunk.numbers[index], text))
                if len(self.errors) == EARLIEST:
                    return


class _Lines:
    """A chunk whose lines are lowered and stripped only when somebody asks."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._lowered: list[str] | None = None
        self._stripped: dict[int, str] = {}

    def __getitem__(self, index: int) -> str:
        if index not in self._stripped:
            self._stripped[index] = strip_prefixes(self.chunk.lines[index])
        return self._stripped[index]

    def having(self, marks: Sequence[str]) -> Iterable[int]:
        """Indexes of the lines that have one of these lower-case texts."""
        if self._lowered is None:
            self._lowered = [line.lower() for line in self.chunk.lines]
        return (i for i, line in enumerate(self._lowered) if any(mark in line for mark in marks))


def _first_hit(rule: Rule, patterns: Sequence[re.Pattern[str]], lines: _Lines, marks: Sequence[str]) -> Hit | None:
    for index in lines.having(marks):
        for pattern in patterns:
            if found := pattern.search(lines[index]):
                groups = {name: value for name, value in found.groupdict().items() if value}
                return Hit(rule, Line(lines.chunk.numbers[index], lines[index]), groups)
    return None
