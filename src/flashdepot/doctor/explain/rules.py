"""The rules: what a failure looks like, why it happens, what fixes it. One data file a class, in ``rules/``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.doctor.explain.pattern import Pattern
from flashdepot.doctor.explain.phrases import built_for, coded, differing, missing, refused, unloaded, unsuitable
from flashdepot.doctor.explain.spoken import FIELD_SIGNS, OWN_ERRORS
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
}
"""Fields of a rule file that name things, and what makes the sentences about one."""

_LISTS = {"@field": FIELD_SIGNS, "@errors": OWN_ERRORS}
"""What stands for many texts in a rule file."""

HOST_FACTS = ("gpus", "driver", "toolkits", "compilers", "libc", "memory")
"""What of a host record a rule can ask to see beside its advice."""


class Example(msgspec.Struct, frozen=True):
    """A short log, and whether the rule must answer to it."""

    log: str
    matches: bool


class LogRule(msgspec.Struct, frozen=True, eq=False):
    """One class of failures.

    ``patterns`` prove it. ``likely`` ones only suggest it, where the deciding line was left out of the log: they count
    when nothing is proven, with ``likely_context`` only if one of its texts is in the log, and with ``likely_unless`` only
    if none is. With ``context``, lower-case texts, the rule holds only if one of them is in the log; with ``unless``,
    only if none is. ``@field`` among them stands for all texts of the field that flashdepot is of, ``@errors`` for those
    of errors that a package's own build raises.
    ``hides`` names classes that are consequences of this one. A line that an ``ignore`` pattern matches, such as a
    warning about something that is optional, shows nothing.
    ``missing``, ``unsuitable``, ``unloaded``, ``built_for``, ``refused``, ``differing`` and ``coded`` of a file name things, the
    last three as tables; the sentences that say so of them are patterns (`phrases`).
    ``details`` fill in named groups from other lines of the log. ``fix`` may have named groups, the package that the
    line is about, and facts of the host, in braces; ``fix_windows`` and ``fix_amd`` take its place where it does not
    help on that system, or with GPUs of that vendor.
    """

    id: str
    title: str
    rank: int
    why: str
    fix: tuple[str, ...]
    fix_windows: tuple[str, ...]
    fix_amd: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    likely: tuple[Pattern, ...]
    details: tuple[Pattern, ...]
    ignore: tuple[Pattern, ...]
    context: tuple[str, ...]
    likely_context: tuple[str, ...]
    likely_unless: tuple[str, ...]
    unless: tuple[str, ...]
    hides: frozenset[str]
    host: tuple[str, ...]
    source: str
    examples: tuple[Example, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is looked for in a whole log, beside the patterns."""
        return self.context + self.likely_context + self.unless + self.likely_unless

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> LogRule:
        """Read a rule file.

        :raises ValueError: for a missing field, an unknown one, or a value that cannot be.
        """
        known = {"id", "title", "rank", "why", "fix", "patterns", "likely", "context", "unless", "hides", "source"}
        unknown = (
            set(data)
            - known
            - {
                "fix_windows",
                "fix_amd",
                "details",
                "ignore",
                "likely_context",
                "likely_unless",
                "host",
                "example",
                *_SENTENCES,
            }
        )
        if unknown:
            raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
        if data.get("rank") not in RANKS:
            raise ValueError(f"rank {data.get('rank')!r} is none of {', '.join(RANKS)}")
        try:
            rule = cls(
                id=data["id"],
                title=data["title"],
                rank=RANKS.index(data["rank"]),
                why=data["why"],
                fix=tuple(data["fix"]),
                fix_windows=tuple(data.get("fix_windows", ())),
                fix_amd=tuple(data.get("fix_amd", ())),
                patterns=tuple(Pattern.parse(pattern) for pattern in (*data["patterns"], *_sentences(data))),
                likely=tuple(Pattern.parse(pattern) for pattern in data.get("likely", ())),
                details=tuple(Pattern.parse(pattern) for pattern in data.get("details", ())),
                ignore=tuple(Pattern.parse(pattern) for pattern in data.get("ignore", ())),
                context=_texts(data.get("context", ())),
                likely_context=_texts(data.get("likely_context", ())),
                likely_unless=_texts(data.get("likely_unless", ())),
                unless=_texts(data.get("unless", ())),
                hides=frozenset(data.get("hides", ())),
                host=tuple(data.get("host", ())),
                source=data["source"],
                examples=tuple(Example(e["log"], e["matches"]) for e in data["example"]),
            )
        except (KeyError, ValueError) as error:
            raise ValueError(f"field missing or of no use: {error}") from error
        if any(text != text.lower() for text in rule.texts):
            raise ValueError("context, unless and their likely ones are lower-case")
        if not set(rule.host) <= set(HOST_FACTS):
            raise ValueError(f"host facts are {', '.join(HOST_FACTS)}")
        return rule


def _sentences(data: Mapping[str, Any]) -> Iterable[str]:
    for name, sentences in _SENTENCES.items():
        for thing in data.get(name, ()):
            yield from sentences(**thing) if isinstance(thing, Mapping) else sentences(thing)


def _texts(written: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for item in written for text in _LISTS.get(item, (item,)))


@cache
def load_rules() -> tuple[LogRule, ...]:
    """Every rule, causes before consequences."""
    files = sorted(Path(__file__).with_name("rules").glob("*.toml"))
    return tuple(sorted((LogRule.from_toml(read_toml(file)) for file in files), key=lambda rule: (rule.rank, rule.id)))
