"""What a tool itself says would fix what failed: the lines that say so, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from flashdepot.diagnose.explain.command import code_of
from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.rules import SENTENCES

Edit = Callable[[str, Mapping[str, str]], str]
"""What :meth:`flashdepot.diagnose.explain.edits.Edits.edit` does."""

AS_SAID = "   # as the log itself says"
_ABOVE, _BELOW = 8, 20
"""How many lines before and behind the one that decides a tool may give its hint."""

_TABLE = tuple((Pattern.parse(text), command) for text, command in SENTENCES.rows["hints"])


def _any_of(rows: Iterable[str]) -> Pattern:
    """All rows in one, without names and without bounds of repeats, each of which would be a state of its own.

    In 8 MiB its automaton does not stay: a log of 6 MB then took 35 s for 0.3 s.
    """
    plain = (re.sub(r"\{\d,\d+\}", "*", re.sub(r"\(\?P<\w+>", "(?:", row)) for row in rows)
    return Pattern.parse("|".join(f"(?:{row})" for row in plain), memory=1 << 25)


HINT = _any_of([SENTENCES.lines["hint"], *(pattern.text for pattern, _ in _TABLE)])
"""What is looked for in a whole log."""
OF_A_TOOL = _any_of([SENTENCES.lines["hint"], *(pattern.text for pattern, _ in _TABLE if not pattern.is_sentence)])
"""Which of it are a program's own words, and nobody else's."""
NO_HINT = Pattern.parse(SENTENCES.lines["no_hint"])

SAFE = re.compile(r"(?:[\w@%+=:,./~\[\] -]|'[\w.<>=!~,\[\] -]*'|\"[\w.<>=!~,\[\] -]*\")+")
"""A command of a log that may be advised again: it can start nothing else."""
TYPED = re.compile(
    r"(?:[\w@%+=:,./~\[\] -]|\$\{?\w+\}?|'[\w.<>=!~,:/@*+\[\] -]*'|\"(?:[\w.<>=!~,:/@*+\[\] -]|\$\{?\w+\}?)*\")+"
)
"""A user's own command that may be said again."""
_PROSE = re.compile(
    r"(?: (?:to|and|or|first|before|for|if|in|from|with|then|again|as|on|it|the|manually|command)\b.*|[.,:;]+(?: .*|$)| +$)"
)
_RISKY = re.compile(
    r"://|\bgit\+|\s@\s|^(?:sudo )?git (?!(?:submodule|lfs|fetch|pull|stash|add|init|restore|checkout|config --global --add safe)\b)|^uv(?:x| tool| run)\b|\bcargo run\b"
)
"""What a log must not talk anybody into: other people's addresses, and what runs a program of the log's choice."""
_AS_IT_IS = ("command", "option", "setting", "in_quotes")
"""What stands in a command as the log has it: it is several words, which are checked."""
_UNFILLED = re.compile(r" (?:PACKAGE|NAME)\b|\.\.\.|[-=~<>+]$|(?<!--fix-broken )install(?: -\S+)*$|=[A-Z]$")


class Line(msgspec.Struct, frozen=True):
    """A line of a log: its number from 1, and its text without prefixes."""

    number: int
    text: str


_OF_UV_RUN = re.compile(
    r"^uv run((?: \S+)+?)( --(?:active|no-active|extra|group|all-extras|frozen|isolated|with)(?: \w+)?)$"
)


def near(hints: Sequence[Line], *numbers: int) -> tuple[Line, ...]:
    """The hints that stand close to one of the lines of these numbers."""
    return tuple(hint for hint in hints if any(n - _ABOVE <= hint.number <= n + _BELOW for n in numbers))


def distinct(hints: Sequence[Line]) -> tuple[Line, ...]:
    """The hints without those that advise the same as an earlier one."""
    by_advice: dict[str, Line] = {}
    for hint in hints:
        by_advice.setdefault(_command(hint.text, "", lambda *_: "", str)[1] or hint.text, hint)
    return tuple(by_advice.values())


def commands_in(hints: Iterable[Line], again: str, edit: Edit, carried: Callable[[str], str]) -> tuple[str, ...]:
    """The commands that hints name, or that fix what they tell of, each once, with what is said of it.

    What a log names holds nothing that a shell would take for more than one command.

    :param again: the command that failed, for what is to be added to it.
    :param edit: the command for a row that begins with ``@``, by what follows there and what its line names.
    :param carried: any other command as it runs here.
    """
    said = (_command(hint.text, again or "THE_COMMAND", edit, carried) for hint in hints)
    in_order = sorted(said, key=lambda row_and_command: row_and_command[0])
    return tuple(dict.fromkeys(command for _, command in in_order if command))


def _command(text: str, again: str, edit: Edit, carried: Callable[[str], str]) -> tuple[int, str]:
    """The command of the first row that has one for a line, behind that row's number: rows of a tool's own case come first."""
    for row, command, found in _rows_of(text):
        if command.startswith("@"):
            if edited := edit(command[1:], found):
                return row, edited
            continue
        groups = {name: shlex.quote(value.rstrip(".")) for name, value in found.items() if name not in _AS_IT_IS}
        groups |= {name: found[name] for name in _AS_IT_IS if name in found}
        if "command" in groups:
            groups["command"] = _PROSE.sub("", groups["command"])
            if not SAFE.fullmatch(groups["command"]) or _RISKY.search(groups["command"]):
                return row, ""
        try:
            filled = _with_option_first(command.format(**groups, again=again))
        except KeyError:
            return row, ""  # the line has not what the command is for
        if _UNFILLED.search(code_of(filled)):
            return row, ""
        return row, carried(filled if "   # " in filled else f"{filled}{AS_SAID}")
    return 0, ""


def _with_option_first(command: str) -> str:
    """A command of ``uv run`` with an option of uv's own behind it: what follows the program's name is the program's."""
    return _OF_UV_RUN.sub(r"uv run\2\1", command)


@lru_cache(maxsize=256)
def _rows_of(text: str) -> Sequence[tuple[int, str, Mapping[str, str]]]:
    """The rows that a line matches, in their order: the number and the command of each, and what the line names."""
    rows = []
    for row, (pattern, command) in enumerate(_TABLE):
        if found := pattern.search(text.encode()):
            groups = {name: value.decode(errors="replace") for name, value in found.groupdict().items() if value}
            either = groups.get("other") or groups.get("optional", "")
            rows.append((row, command, {**dict.fromkeys(pattern.groups if either else (), either), **groups}))
    return rows
