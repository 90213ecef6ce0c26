"""The rules: what a failure looks like, why it happens, what fixes it. One data file a class, in ``rules/``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.steps import Step
from flashdepot.files.documents import read_toml


class _Sentence(msgspec.Struct, frozen=True):
    """Sentences about things, which rules name: ``of`` are the names of these, ``words`` what the patterns have in common."""

    of: tuple[str, ...]
    patterns: tuple[str, ...]
    words: Mapping[str, str] = {}

    def about(self, thing: str | Mapping[str, str], common: Mapping[str, str]) -> list[str]:
        """Its patterns for one thing, or for several by their names."""
        things = thing if isinstance(thing, Mapping) else {self.of[0]: thing}
        words = {**common, **self.words, **things}
        return [filled(pattern, words) for pattern in self.patterns]


def filled(text: str, words: Mapping[str, str]) -> str:
    """A pattern with other texts in place of their names between two ``@``; :raises ValueError: for a name of no text."""

    def named(found: re.Match[str]) -> str:
        if found[1] not in words:
            raise ValueError(f"@{found[1]}@ is not a word of sentences.toml")
        return filled(words[found[1]], words)

    return re.sub(r"@(\w+)@", named, text)


class Sentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people and programs write when something fails, as ``sentences.toml`` has it."""

    words: Mapping[str, str]
    sentences: Mapping[str, _Sentence]
    signs: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, str]
    voices: Mapping[str, str]
    machine: Mapping[str, str]
    machine_signs: Mapping[str, str]
    rows: Mapping[str, tuple[tuple[str, str], ...]]
    notions: Mapping[str, str]


PACKAGE = "package"
"""The notion of any package that is known by its name; the others are texts of ``sentences.toml``."""

SENTENCES = msgspec.convert(read_toml(Path(__file__).with_name("sentences.toml")), Sentences)
WINDOWS_SIGNS, AMD_SIGNS, INSTALL_SIGNS = (SENTENCES.signs[name] for name in ("windows", "amd", "installs"))

RANKS = ("memory-or-disk", "missing-tool", "wrong-version", "source", "link", "wrapper", "symptom")
"""Kinds of causes: what stands further left makes what stands further right happen, never the other way round.

A symptom says what happened and not why; it is named only where nothing else is.
"""
SYMPTOM = RANKS.index("symptom")

_Text = Annotated[str, msgspec.Meta(pattern=r"^[^A-Z]*$")]
_Texts = tuple[_Text, ...]
_Patterns = tuple[Pattern, ...]
_Phase = Literal["resolve", "fetch", "build", "install", "link", "import", "run"]


class LogRule(msgspec.Struct, frozen=True, eq=False, kw_only=True, forbid_unknown_fields=True):
    """One class of failures, or one case of it: what needs other advice than the rest of the class.

    ``id`` is the name of its file. ``patterns`` show it, in a step of one of its ``phases`` (any, if it does not say), or
    where the log does not say what ran; ``in_step`` ones only where it does. ``@word@`` in them is a text of ``words`` in
    ``sentences.toml``. With ``installers`` it must not be another one that began the work. ``likely`` ones only suggest it,
    where the deciding line was left out of the log: they count when nothing is certain. ``listed`` ones are as often a
    program's own fault: the class is then listed, and not named; so it is for a person who writes of all ``notions`` of
    ``sentences.toml`` that a row of ``asked`` has. A line that an ``ignore`` pattern matches, such as a
    warning about something that is optional, shows nothing. ``details`` fill in named groups from other lines of the log.

    With ``context``, lower-case texts, the rule holds only if one of them is in the log; with ``unless``, only if none is.
    ``@field`` among them stands for all texts of the field that flashdepot is of, ``@errors`` for those of errors that a
    package's own build raises. ``of_older_gpus`` says that a GPU of the log that has what the line asks for rules it out.
    ``warns`` says that the tools tell of it by a warning, which shows nothing for certain elsewhere. ``absence`` says that
    the class is concluded from something that is not there, and so never certain; nor is it where one of its ``unsure``
    texts is in the log. ``or_else`` names the classes that it may be instead, the likeliest first. ``hides`` names classes
    that are consequences of this one, or that a build which came to this one went beyond; ``follows`` the one whose line,
    where it stands before, has led to this.

    ``fix`` may have named groups, the package that the line is about, and facts of the host, in braces; ``fix_windows`` and
    ``fix_amd`` take its place where it does not help on that system or with GPUs of that vendor. Commands of another tool
    than the log's are left out. ``unasked`` are said behind them where no package index has answered what was asked for, and its
    presence says that the index is to be asked. ``ours`` says that flashdepot's own library or wheel stands in for what failed.
    """

    id: str
    title: str
    rank: int
    why: str
    fix: tuple[str, ...]
    patterns: _Patterns
    source: str
    phases: tuple[_Phase, ...] = get_args(_Phase)
    fix_windows: tuple[str, ...] = ()
    fix_amd: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    in_step: _Patterns = ()
    likely: _Patterns = ()
    listed: _Patterns = ()
    asked: tuple[str, ...] = ()
    details: _Patterns = ()
    ignore: _Patterns = ()
    context: _Texts = ()
    unless: _Texts = ()
    hides: frozenset[str] = frozenset()
    follows: str = ""
    host: tuple[Literal["gpus", "driver", "toolkits", "compilers", "libc", "memory"], ...] = ()
    installers: tuple[Literal["", "pip", "uv", "poetry", "conda", "cargo"], ...] = ()
    ours: bool = False
    absence: bool = False
    unsure: _Texts = ()
    warns: bool = False
    or_else: tuple[str, ...] = ()
    of_older_gpus: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is searched for in a whole log, next to the patterns."""
        return self.context + self.unless + self.unsure

    def takes(self, step: Step | None, *, known: bool = False, raised: bool = False) -> bool:
        """Whether it can be what went wrong in a step.

        A log that has not said what runs rules nothing out, nor does a command by itself: what stands below it may be
        of another one that was left out.

        :param known: the step must be known to be one of its phases.
        :param raised: the line begins with an error's name: where an installer resolves or fetches, it is of a build, whose
            head was left out.
        """
        if step is None or not step.phase:
            return not known
        if step.command:
            return not known or step.phase in self.phases or (step.phase == "resolve" and "build" in self.phases)
        built = raised and step.installer and step.phase in ("resolve", "fetch") and "build" in self.phases
        return (built or step.phase in self.phases) and (not self.installers or step.installer in self.installers)

    def is_all_of(self, steps: Sequence[Step]) -> bool:
        """Whether a log of these steps tells of nothing but its installers' work.

        What such a log says before its first step, in a title or a quotation, is of that work too.
        """
        return any(step.installer and step.installer in self.installers for step in steps) and not any(
            step.phase in ("import", "run") for step in steps
        )

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> LogRule:
        """Read a rule file.

        :raises ValueError: for a missing field, an unknown one, or a value that cannot be.
        """
        if data.get("rank") not in RANKS:
            raise ValueError(f"rank {data.get('rank')!r} is not one of {', '.join(RANKS)}")
        for name in {word.lstrip("!") for row in data.get("asked", ()) for word in row.split()} - {PACKAGE}:
            if name not in SENTENCES.notions:
                raise ValueError(f"{name} is not a notion of sentences.toml")
        fields = {name: value for name, value in data.items() if name not in SENTENCES.sentences}
        fields["rank"] = RANKS.index(data["rank"])
        fields["patterns"] = [*data.get("patterns", ()), *_sentences(data)]
        for name in ("context", "unless"):
            fields[name] = [text for item in data.get(name, ()) for text in _texts(item)]
        return msgspec.convert(fields, cls, dec_hook=lambda _, text: Pattern.parse(filled(text, SENTENCES.words)))


def _texts(item: str) -> tuple[str, ...]:
    """A text of a rule file, or the many that ``@field`` and ``@errors`` stand for."""
    return SENTENCES.signs[item[1:]] if item.startswith("@") else (item,)


def _sentences(data: Mapping[str, Any]) -> Iterable[str]:
    for name, sentence in SENTENCES.sentences.items():
        for thing in data.get(name, ()):
            yield from sentence.about(thing, SENTENCES.words)


@cache
def _files() -> tuple[tuple[LogRule, ...], ...]:
    """The rules of each file: the cases of a class, then the class itself."""
    files = sorted(Path(__file__).with_name("rules").glob("*.toml"))
    return tuple(tuple(LogRule.from_toml(rule) for rule in _cases(file.stem, read_toml(file))) for file in files)


@cache
def load_rules() -> tuple[LogRule, ...]:
    """Every rule, causes before consequences; of a class the ``cases`` of its file, then the class itself."""
    return tuple(sorted((rule for rules in _files() for rule in rules), key=lambda rule: (rule.rank, rule.id)))


def load_classes() -> tuple[LogRule, ...]:
    """Each class as it is in general, without its cases, causes before consequences."""
    return tuple(sorted((rules[-1] for rules in _files()), key=lambda rule: (rule.rank, rule.id)))


def _cases(name: str, data: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """A rule file's rules: a case has what it does not say itself of the class, but for its title and what is looked for."""
    rule = {"id": name, **{key: value for key, value in data.items() if key != "cases"}}
    shared = {name: rule[name] for name in ("id", "rank", "why", "fix", "source")}
    yield from ({**shared, "patterns": (), **case} for case in data.get("cases", ()))
    yield rule
