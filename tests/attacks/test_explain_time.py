"""Logs that are written to make ``explain`` run forever, or to fill the memory."""

import io
import os
import random
import re
import string
import sys
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest

from flashdepot.diagnose.explain import explain
from flashdepot.diagnose.explain.lines import read_chunks
from flashdepot.diagnose.explain.piece import LINE_CAP
from flashdepot.diagnose.explain.rules import RANKS, LogRule, load_rules
from support.tools import PEAK, run_program

if sys.version_info >= (3, 11):
    from re import _parser as sre_parse
else:
    import sre_parse

SHORT = 256
SIZE = 1 << 16
LEAST = 0.1 if os.name == "nt" else 0.0
"""Seconds to measure for: Windows counts processor time in steps of 1/64 s."""


_CLASSES = {"DIGIT": "1", "WORD": "a", "SPACE": " ", "NOT_DIGIT": "a", "NOT_WORD": "-", "NOT_SPACE": "a"}


def hostile_lines(pattern: str, length: int) -> list[str]:
    """Lines of that many characters: each run of up to three parts, and each beginning, repeated; then random mixtures."""
    parts = [part for part in _parts(sre_parse.parse(pattern.replace(r"\pL", "[a-z]"))) if part != "\n"]
    runs = {"".join(parts[at : at + count]) for at in range(len(parts)) for count in (1, 2, 3)} | set(accumulate(parts))
    lines = {_repeated(run, length) for run in runs}
    chance = random.Random(pattern)
    lines |= {_repeated("".join(chance.choices(parts, k=length)), length) for _ in range(3)}
    return sorted(lines)


def _repeated(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


def _parts(tree: Any) -> list[str]:
    parts: list[str] = []
    literal = ""
    for operation, argument in tree:
        if str(operation) == "LITERAL":
            literal += chr(argument)
            continue
        parts += [literal, *_of(str(operation), argument)]
        literal = ""
    return [part for part in (*parts, literal) if part]


def _of(operation: str, argument: Any) -> Iterator[str]:
    if operation == "IN":
        yield _member(argument)
    elif operation == "ANY":
        yield "a"
    elif operation == "NOT_LITERAL":
        yield "b" if argument == ord("a") else "a"
    elif operation == "BRANCH":
        for branch in argument[1]:
            yield from _parts(branch)
    elif operation == "SUBPATTERN":
        yield from _parts(argument[-1])
    elif operation in {"MAX_REPEAT", "MIN_REPEAT"}:
        least, _, repeated = argument
        inner = _parts(repeated)
        yield "".join(inner) * max(1, least)
        yield from inner


def _member(items: Any) -> str:
    """A character of a class."""
    if str(items[0][0]) == "NEGATE":
        excluded = {character for item in items[1:] for character in _characters(*item)}
        return next((c for c in "ax1.-_ /!" if c not in excluded), "é")
    return next(iter(_characters(*items[0])))


def _characters(operation: Any, argument: Any) -> list[str]:
    if str(operation) == "LITERAL":
        return [chr(argument)]
    if str(operation) == "RANGE":
        return [chr(code) for code in range(argument[0], argument[1] + 1)]
    name = str(argument).removeprefix("CATEGORY_")
    members = {"DIGIT": string.digits, "WORD": string.ascii_letters + string.digits + "_", "SPACE": string.whitespace}
    return list(members.get(name, _CLASSES[name]))


def almost_matching(rule: LogRule, length: int) -> str:
    """Lines that the rule reads and does not answer to."""
    patterns = rule.patterns + rule.likely
    made = dict.fromkeys(line for pattern in patterns for line in hostile_lines(pattern.text, length))
    return "\n".join(line for line in made if not any(p.search(line.encode()) for p in patterns)) + "\n"


def cost(log: str) -> float:
    """Processor seconds for a fixed number of bytes of such lines; the least of some runs, as others use the machine."""
    data = log.encode()
    data = (data * (SIZE // len(data) + 1))[:SIZE]
    costs = []
    for _ in range(3):
        begin, runs = time.process_time(), 0
        while not runs or time.process_time() - begin < LEAST:
            explain(io.BytesIO(data))
            runs += 1
        costs.append((time.process_time() - begin) / runs)
    return min(costs)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_a_rule_takes_no_longer_for_a_byte_of_long_lines_that_are_made_against_it(rule) -> None:
    short, long = almost_matching(rule, SHORT), almost_matching(rule, LINE_CAP)
    assert cost(long) < 4 * cost(short), "quadratic time would be 16 times as long"


@pytest.mark.parametrize("length", [3, 12])
@pytest.mark.parametrize("rule", [r for r in load_rules() if r.rank == RANKS.index("link")], ids=lambda rule: rule.id)
def test_many_short_lines_take_no_longer_for_a_byte_than_a_few_long_ones(rule, length) -> None:
    short, long = almost_matching(rule, length), almost_matching(rule, SHORT)
    assert cost(short) < 6 * cost(long), "to take out each line by itself takes 20 times as long"


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        pytest.param("(a", " pid=1", id="a launcher's prefix that does not end"),
        pytest.param("", " ", id="spaces"),
        pytest.param("", "[", id="brackets"),
        pytest.param("warning: ", "error ", id="words that state an error"),
        pytest.param("\x1b[", "0;", id="a colour that does not end"),
        pytest.param("", "\x1b]", id="titles that do not end"),
        pytest.param("torch", " ", id="a version that does not come"),
    ],
)
def test_what_is_looked_for_in_every_line_takes_no_longer_for_long_lines(begin, again) -> None:
    short, long = (begin + again * (length // len(again)) + " warning: error\n" for length in (SHORT, LINE_CAP))
    assert cost(long) < 4 * cost(short)


@pytest.mark.parametrize(
    "again", ["(a) ", "(a)", "a.", "a=", "a: ", "a b", "| a", '"a",', "a(", "if :#", "[a] ", "`a` "]
)
def test_what_stands_around_a_match_is_read_as_fast_whatever_it_is(again: str) -> None:
    made, plain = ((text * 200)[:200] + "\nan illegal memory access was encountered\n" for text in (again, "a"))
    assert cost(made) < 12 * cost(plain)


def test_short_lines_that_all_have_a_mark_are_not_counted_again_for_each_of_them() -> None:
    assert cost("em: 1\n") < 40 * cost("nothing here at all to look at\n")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from Linux's /proc")
def test_hostile_lines_of_all_rules_take_bounded_memory(tmp_path) -> None:
    log = tmp_path / "hostile.log"
    lines = "".join(almost_matching(rule, 1024) for rule in load_rules())
    log.write_text(lines, encoding="utf-8")
    measure = (
        f"import sys; from flashdepot.diagnose.explain import explain; explain(open(sys.argv[1], 'rb')); print({PEAK})"
    )
    assert int(run_program([sys.executable, "-c", measure, str(log)])) < 200_000


@pytest.mark.parametrize(
    "hidden", ["\x1b\x1b[0m[2J", "\x1b]0;title\x07", "\x1b[8m", "\x9b2J", "\x08\x08\x08", "\x07", "\x1b]52;c;ZXZpbA=="]
)
def test_nothing_that_a_terminal_obeys_is_shown(hidden) -> None:
    log = f"error: widget{hidden} is broken\n".encode()
    report = explain(io.BytesIO(log))
    shown = report.errors[0].text
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)
    assert not any(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", chunk.text) for chunk in read_chunks(io.BytesIO(log)))
