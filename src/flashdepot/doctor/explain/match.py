"""Which rules a log answers to. Decides, and reads nothing but the lines it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import msgspec
from msgspec.structs import replace

from flashdepot.doctor.explain.lines import Chunk, strip_prefixes
from flashdepot.doctor.explain.packages import Package, package_of, package_running
from flashdepot.doctor.explain.pattern import Found, Pattern
from flashdepot.doctor.explain.rules import SYMPTOM, LogRule
from flashdepot.doctor.explain.screen import Screen
from flashdepot.doctor.explain.spoken import AMD_SIGNS, BUILD_SIGNS, CARGO_SIGNS, RUN_SIGNS, WINDOWS_SIGNS

LINE_CAP = 4096
"""Bytes of a line that are kept, around what was found in it."""

EARLIEST = 5
"""How many of the first lines that state an error are kept, for logs that no rule knows."""

_EXAMINED = 1000
"""How many lines of a piece are asked whether they state an error; a hostile one has nothing but lines that seem to."""

_FLASH = "flash"

_IGNORED = 100
"""How many lines of a piece a rule passes over before it takes the next one as it is."""

_STATES_ERROR = Pattern.parse(
    r"(?i)(?:^|[^\pL\w/.-])(?:error|fatal|panic(?:ked)?|failed|Fehler|erreur|ошибка|错误|錯誤|エラー|오류|erro)"
    r"(?:$|[^\pL\w/=\s-]|\s+(?:$|[^=\s]))"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|\b(?:C|LNK|MSB|D)\d{4}:|\bE\d{4}\]|undefined (?:reference|symbol)"
    r"|command not found|\bcannot (?:open|find|import)|\bno such file\b|\bnot found\b|permission denied"
    r"|connection refused|\bunable to\b|not recognized|^Killed\b",
    memory=1 << 23,
)
_ONLY_REPORTS = Pattern.parse(
    r"(?i)subprocess-exited-with-error|\b(?:run|execute) successfully\b|Failed (?:building|to build)\b|Could not build wheels"
    r"|Failed to build installable|ninja: build stopped|\bCalledProcessError\b|Error compiling objects|\(setup\.py\).* error"
    r"|\(pyproject\.toml\).* error|^error: (?:legacy-install|metadata-generation)|Command errored out"
    r"|failed with exit (?:code|status)|^make(?:\[\d+\])?: \*\*\*|\bChildFailedError\b|build failed, waiting"
    r"|^error: could not compile `|failed to run custom build command|^[\w ]+Error:?$"
)
"""Lines of installers, builders and launchers that say that something failed, which their users know, and not why."""

_NO_ERROR = Pattern.parse(r"(?i)\b(?:0|no) (?:errors?|failed)\b|\bwarning\b|^(?:I|INFO|DEBUG)\b|^\s*(?:raise|except)\b")
_DOES_WITHOUT = Pattern.parse(
    r"(?i)\bfall(?:ing|s)?[ -]?back (?:to|on)\b|\bwill fall ?back\b|\bunavailable_reason\b|['\"]available['\"]: False"
    r"|\bignor(?:e|ed|ing) (?:the |this |an? )?(?:import )?(?:error|exception|failure)"
    r"|\blevel=(?:debug|info)\b|\dZ +(?:info|debug|trace) "
    r"|^[\s│]*\d{1,5}[\s│]+.*\bf['\"].*\{|^f?\"[^\"]+(?: \"|\",)$"
)
"""What a program says that does without something, a line of its own life and no reason why a command failed; what is
marked as news or for debugging; and what nobody printed: strings in source, in the numbered lines that a traceback shows
around its own and in quoted scripts."""

_TORCH_VERSION = re.compile(rb"torch(?:\.__version__)?(?: version)?\s?(?:==|=|:|-)?\s*['\"]?v?(\d+\.\d+)")


class Line(msgspec.Struct, frozen=True):
    """A line of a log: its number from 1, and its text without prefixes."""

    number: int
    text: str


class Hit(msgspec.Struct, frozen=True):
    """A rule that the log answers to, the first line that shows it, and the named groups of the match.

    One that is not proven stands on a rule's ``likely`` patterns. ``package`` is whose file or build it is about.
    """

    rule: LogRule
    line: Line
    groups: Mapping[str, str]
    package: Package | None = None
    proven: bool = True


class RuleOutcome(msgspec.Struct, frozen=True):
    """What was found: hits with causes first, the earliest lines that state an error, and the torch that is named.

    ``windows`` and ``amd`` say whether something in the log is of that system, or of that vendor's GPUs, and ``flash``
    whether it speaks of FlashAttention at all; ``package`` is the one that the first error is about. ``decided`` says
    whether an error line tells more than that something failed, ``cargo`` and ``run`` what made the log: cargo, or a
    program that was run rather than a build.
    """

    hits: tuple[Hit, ...]
    errors: tuple[Line, ...]
    torch: str = ""
    windows: bool = False
    amd: bool = False
    flash: bool = False
    package: Package | None = None
    decided: bool = True
    cargo: bool = False
    run: bool = False


def match(rules: Sequence[LogRule], chunks: Iterable[Chunk]) -> RuleOutcome:
    """Go through a log once and return what it answers to."""
    search = _Search(rules)
    for chunk in chunks:
        search.look_at(chunk)
    return search.outcome()


@cache
def _screen(rules: tuple[LogRule, ...]) -> Screen:
    """What is looked for in every piece of a log; making it takes longer than reading a short log."""
    patterns = [pattern for rule in rules for pattern in rule.patterns + rule.likely]
    texts = {text for rule in rules for text in rule.texts}.union(
        WINDOWS_SIGNS, AMD_SIGNS, CARGO_SIGNS, BUILD_SIGNS, RUN_SIGNS
    )
    return Screen(dict.fromkeys((*patterns, _STATES_ERROR)), texts)


@dataclass
class _Search:
    rules: Sequence[LogRule]
    found: dict[str, Hit] = field(default_factory=dict)
    suggested: dict[str, Hit] = field(default_factory=dict)
    errors: list[Line] = field(default_factory=list)
    reports: list[Line] = field(default_factory=list)
    torch: str = ""

    def __post_init__(self) -> None:
        self._open = list(self.rules)
        self._seen: set[str] = set()
        self._before = b""
        self._package: Package | None = None
        self._screen = _screen(tuple(self.rules))

    def look_at(self, chunk: Chunk) -> None:
        possible, texts = self._screen.possible(chunk.lowered)
        self._seen |= texts
        for rule in tuple(self._open) if possible else ():
            if hit := _first_hit(
                rule, [pattern for pattern in rule.patterns if pattern in possible], chunk, self._before
            ):
                self.found[rule.id] = hit
                self._open.remove(rule)
            elif rule.likely and rule.id not in self.suggested:
                likely = _first_hit(
                    rule, [pattern for pattern in rule.likely if pattern in possible], chunk, self._before
                )
                if likely:
                    self.suggested[rule.id] = replace(likely, proven=False)
        if len(self.errors) < EARLIEST and _STATES_ERROR in possible:
            self._keep_errors(chunk)
        if not self.torch and (found := _TORCH_VERSION.search(chunk.lowered)):
            self.torch = found[1].decode()
        self._before = chunk.text

    def outcome(self) -> RuleOutcome:
        proven, likely = ([hit for hit in hits.values() if self._holds(hit)] for hits in (self.found, self.suggested))
        hits = [hit for hit in proven if hit.rule.rank != SYMPTOM] or likely or proven
        hidden = frozenset[str]().union(*(hit.rule.hides for hit in hits))
        hits = [hit for hit in hits if hit.rule.id not in hidden]
        hits.sort(key=lambda hit: (hit.rule.rank, hit.line.number, hit.rule.id))
        signs = (WINDOWS_SIGNS, AMD_SIGNS, CARGO_SIGNS, BUILD_SIGNS, RUN_SIGNS)
        windows, amd, cargo, built, run = (not self._seen.isdisjoint(texts) for texts in signs)
        return RuleOutcome(
            tuple(hits),
            tuple(self.errors or self.reports),
            self.torch,
            windows,
            amd,
            _FLASH in self._seen,
            self._package,
            decided=bool(self.errors) or not self.reports,
            cargo=cargo,
            run=run and not built,
        )

    def _holds(self, hit: Hit) -> bool:
        rule = hit.rule
        context = (not hit.proven and rule.likely_context) or rule.context
        unless = rule.unless if hit.proven else rule.unless + rule.likely_unless
        return (not context or not self._seen.isdisjoint(context)) and self._seen.isdisjoint(unless)

    def _keep_errors(self, chunk: Chunk) -> None:
        end = 0
        for _ in range(_EXAMINED):
            found = _STATES_ERROR.search(chunk.text, end)
            if found is None or len(self.errors) == EARLIEST:
                return
            line = _line_at(chunk, found.start(), found.end())
            text = line.text.encode()
            if not _NO_ERROR.search(text):
                if not _ONLY_REPORTS.search(text):
                    self.errors.append(line)
                elif len(self.reports) < EARLIEST:
                    self.reports.append(line)
                before = self._before + chunk.text[: found.end()]
                self._package = self._package or package_of(line.text, before) or package_running(before)
            end = _end_of_line(chunk.text, found.end())


def _first_hit(rule: LogRule, patterns: Sequence[Pattern], chunk: Chunk, before: bytes) -> Hit | None:
    """The first line that a pattern matches; where several match it, the one that the rule names first counts.

    :param before: the piece of the log that came before, for what the line itself does not say.
    """
    matches = [found for pattern in patterns if (found := _search(pattern, rule.ignore, chunk))]
    if not matches:
        return None
    found = min(matches, key=lambda match: _end_of_line(chunk.text, match.end()))
    groups = _groups(found)
    for pattern in rule.details:
        if detail := pattern.search(before + chunk.text):
            groups = {**_groups(detail), **groups}
    line = _line_at(chunk, found.start(), found.end())
    return Hit(rule, line, groups, package_of(line.text, before + chunk.text[: found.end()]))


def _search(pattern: Pattern, ignore: Sequence[Pattern], chunk: Chunk) -> Found | None:
    """The first match in a line that is not to be ignored, of as many as are worth looking at."""
    found = pattern.search(chunk.text)
    for _ in range(_IGNORED):
        if found is None:
            break
        end = _end_of_line(chunk.text, found.end())
        line = chunk.text[chunk.text.rfind(b"\n", 0, found.end()) + 1 : end]
        if not any(other.search(line) for other in (_DOES_WITHOUT, *ignore)):
            break
        found = pattern.search(chunk.text, end)
    return found


def _groups(found: Found) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in found.groupdict().items() if value}


def _line_at(chunk: Chunk, start: int, end: int) -> Line:
    """The line that has these bytes, or of a long one what is around them."""
    number = chunk.first + chunk.text.count(b"\n", 0, end)
    begin = chunk.text.rfind(b"\n", 0, end) + 1
    stop = _end_of_line(chunk.text, end)
    if stop - begin > LINE_CAP:
        begin = max(begin, start - LINE_CAP // 2)
        stop = min(stop, begin + LINE_CAP)
    return Line(number, strip_prefixes(chunk.text[begin:stop]))


def _end_of_line(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return end if end >= 0 else len(text)
