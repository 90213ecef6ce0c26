"""Which rules a log answers to. Decides, and reads nothing but the lines it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

import msgspec
from msgspec.structs import replace

from flashdepot.diagnose.explain import machine
from flashdepot.diagnose.explain.asked import asked_in, sentence_of
from flashdepot.diagnose.explain.hint import HINT, NO_HINT, OF_A_TOOL, Line
from flashdepot.diagnose.explain.lines import Chunk
from flashdepot.diagnose.explain.machine import MachineFacts, Package, package_of
from flashdepot.diagnose.explain.passage import Passages
from flashdepot.diagnose.explain.pattern import Pattern, Screen
from flashdepot.diagnose.explain.piece import NAMES_ERROR, Hit, Piece
from flashdepot.diagnose.explain.rules import AMD_SIGNS, INSTALL_SIGNS, SENTENCES, SYMPTOM, WINDOWS_SIGNS, LogRule
from flashdepot.diagnose.explain.steps import OF_PYTHON, Step, Story

EARLIEST = 5
"""How many of the first lines that state an error are kept, for logs that no rule knows."""

_EXAMINED = 1000
"""How many lines of a piece are asked whether they state an error; a hostile one has nothing but lines that seem to."""

_HINTS = 40
"""How many lines are kept in which a tool says what would fix it."""

_ASKED = 4
"""How many classes are named that a person's sentence may mean."""

_FLASH = "flash"
_CANDLE = "candle"
_GGML = "ggml"
"""What a log of llama.cpp has, whose option flash_attn is its own."""
_OWN_TOOLS = frozenset({"cmake", "git", "ninja"})
_SAID_ALL_THE_SAME = "dependency-conflict"
"""What pip says of packages that it then installs."""
_OWN_PHASES = frozenset({"resolve", "fetch", "install"})

_STATES_ERROR = Pattern.parse(SENTENCES.lines["states_error"], memory=1 << 23)
_GIVES_UP, _ONLY_ENDS = (Pattern.parse(SENTENCES.lines[name]) for name in ("gives_up", "only_ends"))
_NO_ERROR = Pattern.parse(SENTENCES.lines["no_error"])
_ONLY_REPORTS = Pattern.parse("(?i)" + "|".join(text for text, _ in SENTENCES.rows["sums_up"]))
_WHERE = tuple((Pattern.parse(f"(?i){text}"), where) for text, where in SENTENCES.rows["sums_up"])


class RuleOutcome(msgspec.Struct, frozen=True):
    """What was found: hits with causes first, the earliest lines that state an error, and the log's story.

    ``facts`` is what the log says of its machine; ``windows`` and ``amd`` say whether something in it is of that system,
    or of that vendor's GPUs, and ``flash`` whether it speaks of FlashAttention at all; ``package`` is the one that the
    first error is about. ``described`` is what a person tells, a logger warns of or a rule only lists, where no rule knows another line.
    ``decided`` says whether an error line tells more than that something failed. ``hints`` are lines in which a tool
    says what would fix it; ``candle`` says whether the log speaks of candle. ``asked`` is what installers asked an index for, by
    names with the bounds of their releases.
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
    sentence: bool = False
    asked: Mapping[str, str] = {}

    @property
    def cargo(self) -> bool:
        """Whether cargo made the log, or it is of no command and speaks of candle."""
        began = next((step.installer for step in self.steps if step.installer and step.phase != "fetch"), "")
        return began not in OF_PYTHON and (
            any(step.installer == "cargo" for step in self.steps) or (self.candle and not self.steps)
        )

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
    patterns = [pattern for rule in rules for pattern in rule.patterns + rule.in_step + rule.likely + rule.listed]
    texts = {text for rule in rules for text in rule.texts}.union(
        {_FLASH, _CANDLE, _GGML}, WINDOWS_SIGNS, AMD_SIGNS, INSTALL_SIGNS
    )
    return Screen(dict.fromkeys((*patterns, _STATES_ERROR, _GIVES_UP, HINT, *machine.PATTERNS)), texts)


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
        self._sentence = b""
        self._before = b""
        self._package: Package | None = None
        self._gave_up = 0
        self._screen = _screen(tuple(self.rules))

    def begin(self, command: str) -> None:
        self._seen |= self._screen.possible(command.lower().encode())[1]
        self.story.begin(command)

    def look_at(self, chunk: Chunk) -> None:
        self._sentence = b"" if self._before else chunk.text
        possible, texts = self._screen.possible(chunk.lowered)
        self._seen |= texts
        piece = Piece(chunk, self.story.read(chunk), self._before, possible, Passages(chunk.text))
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
            if open_still and not hit and (listed := piece.first_hit(rule, rule.listed)):
                hit = replace(listed, described=True)
            if hit:
                (self.described if hit.described else self.suggested).setdefault(rule, replace(hit, certain=False))
        if len(self.errors) < EARLIEST and _STATES_ERROR in possible:
            self._keep_errors(piece)
        if not self._gave_up and _GIVES_UP in possible:
            self._gave_up = next((piece.line_at(found).number for found in piece.lines_with(_GIVES_UP)), 0)
        if len(self.hints) < _HINTS and HINT in possible:
            self._keep_hints(piece)
        self._before = chunk.text

    def outcome(self) -> RuleOutcome:
        self._place()
        kinds = (self.found, self.suggested, self.described)
        found, likely, described = (
            [hits[rule] for rule in self.rules if rule in hits and self._holds(hits[rule])] for hits in kinds
        )
        hits = _in_order([hit for hit in found if hit.rule.rank != SYMPTOM] or likely or found)
        sentence = "" if self.errors or self.reports else sentence_of(self._sentence)
        named = machine.package_in(sentence)
        asked = {rule.id: _asked(rule, sentence, named) for rule in asked_in(sentence, self.rules)[:_ASKED]}
        spoken_of = (*asked.values(), *(hit for hit in _in_order(described) if hit.rule.id not in asked))
        windows, amd = (not self._seen.isdisjoint(texts) for texts in (WINDOWS_SIGNS, AMD_SIGNS))
        return RuleOutcome(
            tuple(
                replace(
                    hit,
                    package=(machine.package_in(hit.line.text) if hit.rule.absence else None)
                    or package_of(hit.line.text, hit.step)
                    or named,
                    certain=hit.certain and hit.rule.rank != SYMPTOM and self._seen.isdisjoint(hit.rule.unsure),
                )
                for hit in hits
            ),
            tuple(self.errors or self.reports),
            self.story.steps,
            self.facts,
            windows,
            amd,
            _FLASH in self._seen and _GGML not in self._seen,
            self._package,
            described=() if hits else spoken_of,
            decided=bool(self.errors) or not self.reports,
            hints=tuple(self.hints),
            candle=_CANDLE in self._seen,
            sentence=sentence != "",
            asked=self.story.asked,
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
        if self._ran_later(hit) or self._follows(hit):
            return False
        if hit.step and hit.step.well and rule.id != _SAID_ALL_THE_SAME:
            return False
        if hit.step is None and not (NAMES_ERROR.match(hit.line.text.encode()) or self._may_be_of_a_step(rule)):
            return False
        if rule.context and self._seen.isdisjoint(rule.context) and not self._speaks_for_itself(hit):
            return False
        return self._seen.isdisjoint(rule.unless) and not (
            rule.of_older_gpus and machine.has_gpu_asked_for(hit.line.text, self.facts)
        )

    def _speaks_for_itself(self, hit: Hit) -> bool:
        """Whether it means the same whatever the log is about.

        The line is an installer's own or names an installed package, or what installs into Python or builds has run.
        """
        step = hit.step
        own = step is not None and step.installer and step.phase in _OWN_PHASES
        ran = any(step.installer in OF_PYTHON or step.tool in _OWN_TOOLS for step in self.story.steps)
        return bool(own) or ran or "-packages" in hit.line.text

    def _follows(self, hit: Hit) -> bool:
        """Whether a line stands before it that it follows from.

        That is one of the class that its rule names or, for what only says that a process ended or that others wait for it, the
        first in which a program says why it gives up. What an installer reports of a build follows from such a line below it.
        """
        if hit.likely and self._gave_up and _ONLY_REPORTS.search(hit.line.text.encode()):
            return True
        known = (*self.found.values(), *self.suggested.values())
        before = [other.line.number for other in known if other.rule.id == hit.rule.follows]
        if self._gave_up and _ONLY_ENDS.search(hit.line.text.encode()):
            before.append(self._gave_up)
        return min(before, default=hit.line.number) < hit.line.number

    def _ran_later(self, hit: Hit) -> bool:
        """Whether the program that a line misses has written a later part of the log."""
        later = {step.tool for step in self.story.steps if step.first > hit.line.number and not step.command}
        return not later.isdisjoint(hit.groups.values())

    def _may_be_of_a_step(self, rule: LogRule) -> bool:
        """Whether what stands in no step, such as a title, can be of one of the log's."""
        steps = self.story.steps
        return not steps or any(step.command or step.phase in rule.phases for step in steps)

    def _keep_errors(self, piece: Piece) -> None:
        for found in islice(piece.lines_with(_STATES_ERROR), _EXAMINED):
            line = piece.line_at(found)
            text = line.text.encode()
            said = any(line.text in kept.text for kept in (*self.errors, *self.reports))
            if not (said or _NO_ERROR.search(text) or piece.is_source(found)):
                if text.startswith(b"CMake Error") and text.endswith(b"(message):"):
                    line = piece.whole_line_at(found)
                if not _ONLY_REPORTS.search(text):
                    self.errors.append(line)
                elif len(self.reports) < EARLIEST:
                    self.reports.append(line)
                self._package = self._package or package_of(line.text, piece.scene.at(found.start()))
            if len(self.errors) == EARLIEST:
                return

    def _keep_hints(self, piece: Piece) -> None:
        for found in piece.lines_with(HINT):
            line = piece.line_at(found)
            text = line.text.encode()
            if (OF_A_TOOL.search(text) or piece.is_printed(found)) and not NO_HINT.search(text):
                self.hints.append(piece.whole_line_at(found))
            if len(self.hints) == _HINTS:
                return


def _asked(rule: LogRule, sentence: str, package: Package | None) -> Hit:
    """A class that a person's own sentence may mean."""
    return Hit(rule, Line(1, sentence.partition("\n")[0]), {}, package, certain=False, described=True)


def _in_order(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Causes before their consequences, without those that another hides; of a class the first case.

    :param hits: in the order of the rules.
    """
    hidden = {(name, likely) for hit in hits for name in hit.rule.hides for likely in (hit.likely, True)}
    kept = [hit for hit in hits if (hit.rule.id, hit.likely) not in hidden]
    of_classes = {hit.rule.id: hit for hit in [*reversed(kept), *(hit for hit in reversed(kept) if hit.title)]}
    return tuple(
        sorted(
            of_classes.values(),
            key=lambda hit: (not hit.title, not hit.certain, hit.likely, hit.rule.rank, hit.line.number, hit.rule.id),
        )
    )
