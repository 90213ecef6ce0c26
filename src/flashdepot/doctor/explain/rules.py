"""The rules: what a failure looks like, why it happens, what fixes it. One data file a class, in ``rules/``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from flashdepot.doctor.explain.pattern import Pattern
from flashdepot.doctor.explain.phrases import (
    built_for,
    coded,
    crashed,
    differing,
    missing,
    refused,
    unloaded,
    unsuitable,
)
from flashdepot.doctor.explain.spoken import FIELD_SIGNS, OWN_ERRORS
from flashdepot.doctor.explain.steps import Step
from flashdepot.system.toml import read_toml

RANKS = ("memory-or-disk", "missing-tool", "wrong-version", "source", "link", "wrapper", "symptom")
"""Kinds of causes: what stands further left makes what stands further right happen, never the other way round.

A symptom says what happened and not why; it is named only where nothing else is.
"""
SYMPTOM = RANKS.index("symptom")

_SENTENCES: Mapping[str, Callable[..., tuple[str, ...]]] = {
    "missing": missing,
    "unsuitable": unsuitable,
    "unloaded": unloaded,
    "built_for": built_for,
    "refused": refused,
    "differing": differing,
    "coded": coded,
    "crashed": crashed,
}
"""Fields of a rule file that name things, and what makes the sentences about one."""

_LISTS = {"@field": FIELD_SIGNS, "@errors": OWN_ERRORS}
"""What stands for many texts in a rule file."""

_Text = Annotated[str, msgspec.Meta(pattern=r"^[^A-Z]*$")]
_Texts = tuple[_Text, ...]
_Patterns = tuple[Pattern, ...]


class LogRule(msgspec.Struct, frozen=True, eq=False, kw_only=True, forbid_unknown_fields=True):
    """One class of failures.

    ``patterns`` show it, in a step of one of its ``phases``, or where the log does not say what ran; ``in_step`` ones only
    where it does. With ``installers`` it must not be another one that began the work. ``likely`` ones only suggest it, where the deciding line was left out of the
    log: they count when nothing is certain, with ``likely_context`` only if one of its texts is in the log, and with
    ``likely_unless`` only if none is. With ``context``, lower-case texts, the rule holds only if one of them is in the
    log; with ``unless``, only if none is. ``@field`` among them stands for all texts of the field that flashdepot is of,
    ``@errors`` for those of errors that a package's own build raises.
    ``warns`` says that the tools tell of it by a warning, which shows nothing for certain elsewhere.
    ``absence`` says that the class is concluded from something that is not there, and so never certain;
    ``or_else`` names the classes that it may be instead, the likeliest first. ``veto`` names the fact that rules it out.
    ``hides`` names classes that are consequences of this one. A line that an ``ignore`` pattern matches, such as a
    warning about something that is optional, shows nothing.
    ``details`` fill in named groups from other lines of the log. ``fix`` may have named groups, the package that the
    line is about, and facts of the host, in braces; ``fix_windows`` and ``fix_amd`` take its place where it does not
    help on that system, or with GPUs of that vendor.
    ``ours`` says that flashdepot's own library or wheel stands in for what failed.
    ``shown_by`` and ``not_shown_by`` are logs for its test.
    """

    id: str
    title: str
    rank: int
    phases: tuple[Literal["resolve", "fetch", "build", "install", "link", "import", "run"], ...]
    why: str
    fix: tuple[str, ...]
    patterns: _Patterns
    source: str
    shown_by: tuple[str, ...]
    not_shown_by: tuple[str, ...]
    fix_windows: tuple[str, ...] = ()
    fix_amd: tuple[str, ...] = ()
    in_step: _Patterns = ()
    likely: _Patterns = ()
    details: _Patterns = ()
    ignore: _Patterns = ()
    context: _Texts = ()
    likely_context: _Texts = ()
    likely_unless: _Texts = ()
    unless: _Texts = ()
    hides: frozenset[str] = frozenset()
    host: tuple[Literal["gpus", "driver", "toolkits", "compilers", "libc", "memory"], ...] = ()
    installers: tuple[Literal["", "pip", "uv", "poetry", "conda", "cargo"], ...] = ()
    ours: bool = False
    absence: bool = False
    warns: bool = False
    or_else: tuple[str, ...] = ()
    veto: Literal["", "newer-gpu", "newer-driver"] = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is looked for in a whole log, beside the patterns."""
        return self.context + self.likely_context + self.unless + self.likely_unless

    def takes(self, step: Step | None, *, known: bool = False) -> bool:
        """Whether it can be what went wrong in a step.

        A log that has not said what runs rules nothing out, nor does a command by itself: what stands below it may be
        of another one that was left out.

        :param known: the step must be known to be one of its phases.
        """
        if step is None or not step.phase:
            return not known
        if step.command:
            return not known or step.phase in self.phases or (step.phase == "resolve" and "build" in self.phases)
        return step.phase in self.phases and (not self.installers or step.installer in self.installers)

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> LogRule:
        """Read a rule file.

        :raises ValueError: for a missing field, an unknown one, or a value that cannot be.
        """
        if data.get("rank") not in RANKS:
            raise ValueError(f"rank {data.get('rank')!r} is none of {', '.join(RANKS)}")
        fields = {name: value for name, value in data.items() if name not in _SENTENCES}
        fields["rank"] = RANKS.index(data["rank"])
        fields["patterns"] = [*data.get("patterns", ()), *_sentences(data)]
        for name in ("context", "likely_context", "likely_unless", "unless"):
            fields[name] = [text for item in data.get(name, ()) for text in _LISTS.get(item, (item,))]
        return msgspec.convert(fields, cls, dec_hook=lambda _, text: Pattern.parse(text))


def _sentences(data: Mapping[str, Any]) -> Iterable[str]:
    for name, sentences in _SENTENCES.items():
        for thing in data.get(name, ()):
            yield from sentences(**thing) if isinstance(thing, Mapping) else sentences(thing)


@cache
def load_rules() -> tuple[LogRule, ...]:
    """Every rule, causes before consequences."""
    files = sorted(Path(__file__).with_name("rules").glob("*.toml"))
    return tuple(sorted((LogRule.from_toml(read_toml(file)) for file in files), key=lambda rule: (rule.rank, rule.id)))
