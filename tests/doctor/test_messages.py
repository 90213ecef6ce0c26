"""Messages of compilers, loaders, installers and programs, each in its own words, and the class that they show."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from flashdepot.diagnose.explain import explain
from flashdepot.diagnose.explain.rules import load_rules

ROOT = Path(__file__).parents[2]


def _messages() -> Iterator[tuple[str, str]]:
    text = Path(__file__).with_name("messages.txt").read_text(encoding="utf-8")
    for block in text.removeprefix("== ").split("\n== "):
        rule, _, logs = block.partition("\n")
        yield from ((rule, log) for log in logs.split("\n--\n"))


def test_every_message_is_given_its_class_first() -> None:
    named = [(rule, explain(io.BytesIO(log.encode())).findings, log) for rule, log in _messages()]
    assert len(named) > 200
    assert [(rule, log) for rule, findings, log in named if [finding.id for finding in findings][:1] != [rule]] == []


def test_what_a_log_says_is_never_put_inside_the_quotes_of_a_command() -> None:
    # Values of a log are quoted when they are put in: between quotes, those would end there, and bare the value to a shell.
    inside = re.compile(r"""(?:^|\s)(?:'[^']*|"[^"]*)\{(?:name|library|header|file|symbol|message)\}""")
    fixes = [fix for rule in load_rules() for fix in (*rule.fix, *rule.fix_windows, *rule.fix_amd)]
    assert [fix for fix in fixes if inside.search(fix.partition("   #")[0])] == []
