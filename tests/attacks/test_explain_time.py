"""Logs that are written to make ``explain`` run for ever, or to fill the memory."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashdepot.diagnose.explain import explain
from flashdepot.diagnose.explain.lines import read_chunks
from flashdepot.diagnose.explain.match import LINE_CAP
from flashdepot.diagnose.explain.rules import RANKS, LogRule, load_rules
from support.hostile_lines import hostile_lines
from support.tools import PEAK

SHORT = 256
SIZE = 1 << 16


def almost_matching(rule: LogRule, length: int) -> str:
    """Lines that the rule looks at and does not answer to."""
    patterns = rule.patterns + rule.likely
    made = dict.fromkeys(line for pattern in patterns for line in hostile_lines(pattern.text, length))
    return "\n".join(line for line in made if not any(p.search(line.encode()) for p in patterns)) + "\n"


def cost(log: str) -> float:
    """Processor seconds for a fixed number of bytes of such lines; the least of some runs, as others use the machine."""
    data = log.encode()
    data = (data * (SIZE // len(data) + 1))[:SIZE]
    costs = []
    for _ in range(3):
        begin = time.process_time()
        explain(io.BytesIO(data))
        costs.append(time.process_time() - begin)
    return min(costs)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_a_rule_takes_no_longer_for_a_byte_of_long_lines_that_are_made_against_it(rule: LogRule) -> None:
    short, long = almost_matching(rule, SHORT), almost_matching(rule, LINE_CAP)
    assert cost(long) < 4 * cost(short), "quadratic time would be 16 times as long"


@pytest.mark.parametrize("length", [3, 12])
@pytest.mark.parametrize("rule", [r for r in load_rules() if r.rank == RANKS.index("link")], ids=lambda rule: rule.id)
def test_many_short_lines_take_no_longer_for_a_byte_than_a_few_long_ones(rule: LogRule, length: int) -> None:
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
def test_what_is_looked_for_in_every_line_takes_no_longer_for_long_lines(begin: str, again: str) -> None:
    short, long = (begin + again * (length // len(again)) + " warning: error\n" for length in (SHORT, LINE_CAP))
    assert cost(long) < 4 * cost(short)


def test_short_lines_that_all_have_a_mark_are_not_counted_again_for_each_of_them() -> None:
    assert cost("em: 1\n") < 40 * cost("nothing here at all to look at\n")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from Linux's /proc")
def test_hostile_lines_of_all_rules_take_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "hostile.log"
    lines = "".join(almost_matching(rule, 1024) for rule in load_rules())
    log.write_text(lines, encoding="utf-8")
    measure = (
        f"import sys; from flashdepot.diagnose.explain import explain; explain(open(sys.argv[1], 'rb')); print({PEAK})"
    )
    done = subprocess.run([sys.executable, "-c", measure, str(log)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000


@pytest.mark.parametrize(
    "hidden",
    ["\x1b\x1b[0m[2J", "\x1b]0;title\x07", "\x1b[8m", "\x9b2J", "\x08\x08\x08", "\x07", "\x1b]52;c;ZXZpbA=="],
)
def test_nothing_that_a_terminal_obeys_is_shown(hidden: str) -> None:
    log = f"error: widget{hidden} is broken\n".encode()
    report = explain(io.BytesIO(log))
    shown = report.errors[0].text
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)
    assert not any(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", chunk.text) for chunk in read_chunks(io.BytesIO(log)))
