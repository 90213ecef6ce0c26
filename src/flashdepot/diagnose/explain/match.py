"""Which rules a log answers to. Decides, and reads nothing but the lines it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache

import msgspec
from msgspec.structs import replace

from flashdepot.diagnose.explain import machine
from flashdepot.diagnose.explain.hint import HINT, NO_HINT, OF_A_TOOL, Line
from flashdepot.diagnose.explain.lines import Chunk, begin_of_line, end_of_line
from flashdepot.diagnose.explain.machine import MachineFacts, Package, package_of
from flashdepot.diagnose.explain.passage import Passages, Voice
from flashdepot.diagnose.explain.pattern import Pattern, Screen
from flashdepot.diagnose.explain.rules import AMD_SIGNS, INSTALL_SIGNS, SENTENCES, SYMPTOM, WINDOWS_SIGNS, LogRule
from flashdepot.diagnose.explain.source import is_not_reached, is_shown, is_template
from flashdepot.diagnose.explain.steps import Scene, Step, Story

LINE_CAP = 4096
"""Bytes of a line that are kept, around what was found in it."""

EARLIEST = 5
"""How many of the first lines that state an error are kept, for logs that no rule knows."""

_EXAMINED = 1000
"""How many lines of a piece are asked whether they state an error; a hostile one has nothing but lines that seem to."""

_HINTS = 40
"""How many lines are kept in which a tool says what would fix it."""

_WEIGHED = 50
"""How many lines of a piece a pattern is weighed in."""

_NEAR = 400
"""Bytes before and behind a match that may take it back: in a longer line, other sentences stand next to it."""

_SHOWN = 800
"""Bytes before and behind a line in which a traceback shows the source around the line that failed."""

_LEVELS_END = 80
"""Where in a line a logger's level stands: what is only a warning does not say for certain why a command failed."""

_FLASH = "flash"
_CANDLE = "candle"
_OWN_TOOLS = frozenset({"cmake", "git"})
_OF_PYTHON = frozenset({"pip", "uv", "poetry", "pdm"})
_OWN_PHASES = frozenset({"resolve", "fetch", "build", "install"})

_STATES_ERROR = Pattern.parse(SENTENCES.lines["states_error"], memory=1 << 23)
_NO_ERROR = Pattern.parse(SENTENCES.lines["no_error"])
_ONLY_REPORTS = Pattern.parse("(?i)" + "|".join(text for text, _ in SENTENCES.rows["sums_up"]))
_WHERE = tuple((Pattern.parse(f"(?i){text}"), where) for text, where in SENTENCES.rows["sums_up"])

_DOES_WITHOUT = Pattern.parse(SENTENCES.lines["does_without"])
_CONTINUES = re.compile(rb"\n\W{0,40}(?i:using|falling back|switching|continuing|defaulting|skipping)\b")
_WARNS = re.compile(rb"(?:^|[\s\[(|])(?:WARN(?:ING)?|INFO|DEBUG)(?:\W|$)")
_ONLY_WARNS = Pattern.parse(SENTENCES.lines["only_warns"])
_SAYS_ERROR = re.compile(rb"(?i:error|exception|\bfailed)\b")
_IS_SUPPOSED = Pattern.parse(SENTENCES.lines["is_supposed"])
_IS_RAISED = re.compile(rb"\w(?:Error|Exception)\b|\b(?i:error)(?:\[\w+\])?:")
_BRANCH = re.compile("(?:\\s|\u2502)*(?:(?:\u251c|\u2570)\u2500\u25b6|cause: )".encode())
"""How a line begins that uv prints of a tree of causes, the last of which is the reason of the others."""
_TREE = 10
_NAMES_ERROR = re.compile(rb"[^\w#]*(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")


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
    the log that the line is in, ``span`` where in its piece it stands, ``branch`` says that it is of a tree of causes; ``or_else`` takes the place of the rule's.
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
    span: tuple[int, int] = (0, 0)
    branch: bool = False

    def is_reason_of(self, other: Hit) -> bool:
        """Whether it stands right behind the colon of another one in the same line, or further down in a tree of causes."""
        below = self.line.number - other.line.number
        deeper = self.branch and other.branch and 0 < below < _TREE
        return deeper or (below == 0 and 0 < self.span[0] == other.span[1])


class RuleOutcome(msgspec.Struct, frozen=True):
    """What was found: hits with causes first, the earliest lines that state an error, and the log's story.

    ``facts`` is what the log says of its machine; ``windows`` and ``amd`` say whether something in it is of that system,
    or of that vendor's GPUs, and ``flash`` whether it speaks of FlashAttention at all; ``package`` is the one that the
    first error is about. ``described`` is what a person tells or a logger warns of, where no rule knows another line.
    ``decided`` says whether an error line tells more than that something failed. ``hints`` are lines in which a tool
    says what would fix it; ``candle`` says whether the log speaks of candle.
    """

    hits: tuple[Hit, ...]
    errors: tuple[Line, ...]
    steps: tuple[Step, ...]
    facts: MachineFacts
    windows: bool = False
    amd: bool = False
    flash: bool = False
    package: Package | None = None
    described: tuple[Hit, ...] = ()
    decided: bool = True
    hints: tuple[Line, ...] = ()
    candle: bool = False

    @property
    def cargo(self) -> bool:
        """Whether cargo made the log."""
        began = next((step.installer for step in self.steps if step.installer and step.phase != "fetch"), "")
        return began not in _OF_PYTHON and any(step.installer == "cargo" for step in self.steps)

    @property
    def run(self) -> bool:
        """Whether a program that was run made the log, and no build."""
        phases = {step.phase for step in self.steps}
        return bool(phases & {"import", "run"}) and not phases & {"resolve", "build", "link", "install"}


def summed_up_in(line: str) -> str:
    """Where the line stands that says why, for one that only says that something failed; empty where that is not known."""
    return next((where for pattern, where in _WHERE if pattern.search(line.encode())), "")


def match(rules: Sequence[LogRule], chunks: Iterable[Chunk], command: str = "") -> RuleOutcome:
    """Go through a log once and return what it answers to.

    :param command: what wrote the log, where that is known.
    """
    search = _Search(rules)
    search.begin(command)
    for chunk in chunks:
        search.look_at(chunk)
    return search.outcome()


@cache
def _screen(rules: tuple[LogRule, ...]) -> Screen:
    """What is looked for in every piece of a log; making it takes longer than reading a short log."""
    patterns = [pattern for rule in rules for pattern in rule.patterns + rule.in_step + rule.likely]
    texts = {text for rule in rules for text in rule.texts}.union(
        {_FLASH, _CANDLE}, WINDOWS_SIGNS, AMD_SIGNS, INSTALL_SIGNS
    )
    return Screen(dict.fromkeys((*patterns, _STATES_ERROR, HINT, *machine.PATTERNS)), texts)


@dataclass
class _Search:
    rules: Sequence[LogRule]
    found: dict[LogRule, Hit] = field(default_factory=dict)
    suggested: dict[LogRule, Hit] = field(default_factory=dict)
    unplaced: dict[LogRule, Hit] = field(default_factory=dict)
    described: dict[LogRule, Hit] = field(default_factory=dict)
    errors: list[Line] = field(default_factory=list)
    reports: list[Line] = field(default_factory=list)
    hints: list[Line] = field(default_factory=list)
    facts: MachineFacts = field(default_factory=MachineFacts)
    story: Story = field(default_factory=Story)

    def __post_init__(self) -> None:
        self._open = list(self.rules)
        self._seen: set[str] = set()
        self._before = b""
        self._package: Package | None = None
        self._screen = _screen(tuple(self.rules))

    def begin(self, command: str) -> None:
        self._seen |= self._screen.possible(command.lower().encode())[1]
        self.story.begin(command)

    def look_at(self, chunk: Chunk) -> None:
        possible, texts = self._screen.possible(chunk.lowered)
        self._seen |= texts
        piece = _Piece(chunk, self.story.read(chunk), self._before, possible, Passages(chunk.text))
        self.facts.read(chunk.text, possible)
        for rule in tuple(self._open) if possible else ():
            hit = piece.first_hit(rule, rule.patterns, rule.in_step)
            if hit and hit.certain:
                self.found[rule] = replace(hit, certain=not rule.absence and (not hit.title or piece.repeats(rule)))
                self._open.remove(rule)
                continue
            open_still = hit is None or hit.described
            if open_still and rule.in_step and (early := piece.before_any_step(rule)):
                self.unplaced.setdefault(rule, early)
            if open_still and rule.likely and rule not in self.suggested:
                likely = piece.first_hit(rule, rule.likely)
                hit = replace(likely, likely=True) if likely else hit
            if hit:
                (self.described if hit.described else self.suggested).setdefault(rule, replace(hit, certain=False))
        if len(self.errors) < EARLIEST and _STATES_ERROR in possible:
            self._keep_errors(piece)
        if HINT in possible:
            self._keep_hints(piece)
        self._before = chunk.text

    def outcome(self) -> RuleOutcome:
        self._place()
        kinds = (self.found, self.suggested, self.described)
        found, likely, described = (
            [hits[rule] for rule in self.rules if rule in hits and self._holds(hits[rule])] for hits in kinds
        )
        hits = _in_order([hit for hit in found if hit.rule.rank != SYMPTOM] or likely or found)
        windows, amd = (not self._seen.isdisjoint(texts) for texts in (WINDOWS_SIGNS, AMD_SIGNS))
        return RuleOutcome(
            tuple(
                replace(
                    hit,
                    package=package_of(hit.line.text, hit.step),
                    certain=hit.certain and hit.rule.rank != SYMPTOM and self._seen.isdisjoint(hit.rule.unsure),
                )
                for hit in hits
            ),
            tuple(self.errors or self.reports),
            self.story.steps,
            self.facts,
            windows,
            amd,
            _FLASH in self._seen,
            self._package,
            described=() if hits else _in_order(described),
            decided=bool(self.errors) or not self.reports,
            hints=tuple(self.hints),
            candle=_CANDLE in self._seen,
        )

    def _place(self) -> None:
        """Take what stands before any step for what installers did, or, where no step is known, for what they may have done."""
        steps = self.story.steps
        for rule, hit in self.unplaced.items():
            if rule in self.found or rule.is_all_of(steps):
                self.found.setdefault(rule, hit)
            elif not (steps or self._seen.isdisjoint(INSTALL_SIGNS)):
                same = [other for other, shown in self.found.items() if shown.line.number == hit.line.number]
                others = dict.fromkeys(self.found.pop(other).rule.id for other in same)
                self.suggested.setdefault(rule, replace(hit, certain=False, or_else=(*others, *rule.or_else)))

    def _holds(self, hit: Hit) -> bool:
        rule = hit.rule
        own = rule.own and hit.step is not None and _speaks_for_itself(hit.step)
        if self._ran_later(hit) or self._follows(hit):
            return False
        if hit.step is None and not (_NAMES_ERROR.match(hit.line.text.encode()) or self._may_be_of_a_step(rule)):
            return False
        seen = (own or not rule.context or not self._seen.isdisjoint(rule.context)) and self._seen.isdisjoint(
            rule.unless
        )
        return seen and not machine.vetoes(rule.veto, hit.line.text, self.facts)

    def _follows(self, hit: Hit) -> bool:
        """Whether a line of the class that it may follow from stands before it."""
        before = (other.line.number for rule, other in self.found.items() if rule.id == hit.rule.follows)
        return min(before, default=hit.line.number) < hit.line.number

    def _ran_later(self, hit: Hit) -> bool:
        """Whether the program that a line misses has written a later part of the log."""
        later = {step.tool for step in self.story.steps if step.first > hit.line.number and not step.command}
        return not later.isdisjoint(hit.groups.values())

    def _may_be_of_a_step(self, rule: LogRule) -> bool:
        """Whether what stands in no step, such as a title, can be of one of the log's."""
        steps = self.story.steps
        return not steps or any(step.command or step.phase in rule.phases for step in steps)

    def _keep_errors(self, piece: _Piece) -> None:
        end, chunk = 0, piece.chunk
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
                self._package = self._package or package_of(line.text, piece.scene.at(found.start()))
            end = end_of_line(chunk.text, found.end())

    def _keep_hints(self, piece: _Piece) -> None:
        end, chunk = 0, piece.chunk
        while len(self.hints) < _HINTS and (found := HINT.search(chunk.text, end)):
            line = _line_at(chunk, found.start(), found.end())
            text = line.text.encode()
            if (OF_A_TOOL.search(text) or piece.is_printed(found)) and not NO_HINT.search(text):
                self.hints.append(line)
            end = end_of_line(chunk.text, found.end())


class _Piece(msgspec.Struct, frozen=True):
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

    def is_printed(self, found: re.Match[bytes]) -> bool:
        """Whether a program printed what was found, and no person wrote it."""
        in_step = self.scene.at(found.start()) is not None
        voice = self.passages.voice_of(*found.span(), in_step=in_step, sentence=False)
        return voice is Voice.PRINTED and not self._is_source(found)

    def repeats(self, rule: LogRule) -> bool:
        """Whether what a title says stands below it too, where the program's own line is."""
        below = end_of_line(self.chunk.text, 0)
        return any(pattern.search(self.chunk.text, below) for pattern in rule.patterns if pattern in self.possible)

    def before_any_step(self, rule: LogRule) -> Hit | None:
        """What a line matches that stands where the log has not said what runs, of patterns that want to know."""
        sought = ((pattern, pattern.search(self.chunk.text)) for pattern in rule.in_step if pattern in self.possible)
        early = ((pattern, found) for pattern, found in sought if found and self.scene.at(found.end()) is None)
        hits = (self._hit(rule, self._weigh(rule, pattern, found), found) for pattern, found in early)
        return next((hit for hit in hits if not hit.described), None)

    def _hit(self, rule: LogRule, weight: _Weight, found: re.Match[bytes]) -> Hit:
        text = self.chunk.text
        groups = _groups(found)
        for pattern in rule.details:
            if detail := pattern.search(self.before + text):
                groups = {**_groups(detail), **groups}
        line = _line_at(self.chunk, found.start(), found.end())
        return Hit(
            rule,
            line,
            groups,
            certain=weight is _Weight.PROVES,
            described=weight is _Weight.TELLS,
            title=weight is _Weight.PROVES and line.number == 1 and text.lstrip().startswith(b"#"),
            step=self.scene.at(found.start()),
            span=(found.start(), found.end() + 2 * text.startswith(b": ", found.end())),
            branch=_BRANCH.match(text, begin_of_line(text, found.end())) is not None,
        )

    def _heaviest(self, rule: LogRule, pattern: Pattern, *, in_step: bool) -> tuple[_Weight, re.Match[bytes]] | None:
        """The match that weighs most among as many as are worth looking at, the first of these."""
        text, end, best = self.chunk.text, 0, None
        for _ in range(_WEIGHED):
            if (found := pattern.search(text, end)) is None:
                return best
            raised = _NAMES_ERROR.match(text, begin_of_line(text, found.end())) is not None
            if rule.takes(self.scene.at(found.end()), known=in_step, raised=raised):
                weight = self._weigh(rule, pattern, found)
                best = (weight, found) if weight > (best[0] if best else _Weight.NOTHING) else best
                if weight is _Weight.PROVES:
                    return best
            end = end_of_line(text, found.end())
        return best

    def _weigh(self, rule: LogRule, pattern: Pattern, found: re.Match[bytes]) -> _Weight:
        """What a match is worth: a program printed it because something failed, and neither warns nor shows its source."""
        near, source = self._near(found), self._is_source(found)
        goes_on = _CONTINUES.match(self.chunk.text, end_of_line(self.chunk.text, found.end()))
        taken_back = goes_on or any(other.search(near) for other in (_DOES_WITHOUT, *rule.ignore))
        if taken_back or (source and (is_template(near) or self._is_not_reached(found))):
            return _Weight.NOTHING
        in_step = self.scene.at(found.start()) is not None
        sentence = pattern.is_sentence and not in_step
        voice = Voice.PRINTED if source else self.passages.voice_of(*found.span(), in_step=in_step, sentence=sentence)
        if voice is not Voice.PRINTED:
            return _Weight.SHOWS if voice is Voice.DOUBTFUL else _Weight.TELLS
        begin = begin_of_line(self.chunk.text, found.end())
        warns = _WARNS.search(self.chunk.text[begin : begin + _LEVELS_END]) or _ONLY_WARNS.search(near)
        if warns and not (rule.warns or _SAYS_ERROR.search(near)):
            return _Weight.TELLS
        supposed = _IS_SUPPOSED.search(near) and not _IS_RAISED.search(near)
        return _Weight.PROVES if rule.warns or not (supposed or source) else _Weight.SHOWS

    def _near(self, found: re.Match[bytes]) -> bytes:
        text = self.chunk.text
        begin = begin_of_line(text, found.end())
        return text[max(begin, found.start() - _NEAR) : min(end_of_line(text, found.end()), found.end() + _NEAR)]

    def _is_not_reached(self, found: re.Match[bytes]) -> bool:
        text, begin = self.chunk.text, begin_of_line(self.chunk.text, found.end())
        return is_not_reached(text[begin : begin + _NEAR], text[max(0, begin - _SHOWN) : begin + _SHOWN])

    def _is_source(self, found: re.Match[bytes]) -> bool:
        """Whether the line is source that a traceback shows: a frame stands before it, or its number in it."""
        text = self.chunk.text
        begin = begin_of_line(text, found.end())
        before = max(begin_of_line(text, max(0, begin - 1)), begin - _NEAR)
        line = text[begin : min(end_of_line(text, begin), begin + LINE_CAP)]
        return not _NAMES_ERROR.match(line) and is_shown(line, text[before:begin])


def _in_order(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Causes before their consequences, without those that another hides; of a class the first case.

    :param hits: in the order of the rules.
    """
    hits = [hit for hit in hits if not any(other.is_reason_of(hit) for other in hits)]
    hidden = {(name, likely) for hit in hits for name in hit.rule.hides for likely in (hit.likely, True)}
    kept = [hit for hit in hits if (hit.rule.id, hit.likely) not in hidden]
    of_classes = {hit.rule.id: hit for hit in [*reversed(kept), *(hit for hit in reversed(kept) if hit.title)]}
    return tuple(
        sorted(
            of_classes.values(),
            key=lambda hit: (not hit.title, not hit.certain, hit.rule.rank, hit.line.number, hit.rule.id),
        )
    )


def _speaks_for_itself(step: Step) -> bool:
    """Whether what stands in a step is of an installer's own work, of CMake or of git, and not of whatever they run."""
    return step.tool in _OWN_TOOLS or (step.installer != "" and step.phase in _OWN_PHASES)


def _groups(found: re.Match[bytes]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in found.groupdict().items() if value}


def _line_at(chunk: Chunk, start: int, end: int) -> Line:
    """The line that has these bytes, or of a long one what is around them."""
    number = chunk.number(end)
    begin = begin_of_line(chunk.text, end)
    stop = end_of_line(chunk.text, end)
    if stop - begin > LINE_CAP:
        begin = max(begin, start - LINE_CAP // 2)
        stop = min(stop, begin + LINE_CAP)
    return Line(number, chunk.line(begin, stop))
