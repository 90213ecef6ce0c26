"""Each rule answers to its own examples, and its placeholders have values."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.logs import classes
from flashdepot.diagnose.explain.report import fill
from flashdepot.diagnose.explain.rules import LogRule, load_rules

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    pytest.param(rule, log, shows, id=rule.id)
    for rule in load_rules()
    for shows, logs in ((True, rule.shown_by), (False, rule.not_shown_by))
    for log in logs
]
MINIMAL = {
    "id": "x",
    "title": "t",
    "rank": "link",
    "why": "w",
    "fix": ["f"],
    "patterns": ["m"],
    "source": "s",
    "phases": ["link"],
    "shown_by": [],
    "not_shown_by": [],
}


@pytest.mark.parametrize(("rule", "log", "shows"), EXAMPLES)
def test_a_rule_answers_to_its_examples_and_to_nothing_that_only_looks_alike(
    rule: LogRule, log: str, *, shows: bool
) -> None:
    found = classes(log)
    if shows:
        assert found[:1] == [rule.id]
    else:
        assert rule.id not in found


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_a_rule_is_named_as_its_file_and_has_examples_of_both_kinds(rule: LogRule) -> None:
    folder = ROOT / "src/flashdepot/diagnose/explain/rules"
    assert (folder / f"{rule.id}.toml").is_file()
    assert rule.phases
    assert rule.shown_by
    assert rule.not_shown_by


def test_what_a_rule_hides_is_a_rule() -> None:
    ids = {rule.id for rule in load_rules()}
    assert {other for rule in load_rules() for other in (*rule.hides, *rule.or_else)} <= ids


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_every_placeholder_comes_from_a_pattern_or_from_the_host(rule: LogRule) -> None:
    groups = {name for pattern in rule.patterns + rule.in_step + rule.likely + rule.details for name in pattern.groups}
    host = {
        "jobs",
        "gpu",
        "gpu_arch",
        "gpu_capability",
        "cuda_home",
        "compiler",
        "driver",
        "package",
        "rebuild",
        "install",
        "module",
    }
    named = {
        name
        for text in (rule.why, *rule.fix, *rule.fix_windows, *rule.fix_amd)
        for name in re.findall(r"\{(\w+)\}", text)
    }
    assert named <= groups | host


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "unknown field `colour`"),
        ({"context": ["NVCC"]}, "$.context[0]"),
        ({"host": ["weather"]}, "$.host[0]"),
        ({"phases": ["lunch"]}, "$.phases[0]"),
        ({"patterns": ["("]}, "missing )"),
        ({"rank": "later"}, "later"),
    ],
)
def test_a_rule_file_with_a_mistake_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        LogRule.from_toml({**MINIMAL, **change})


def test_a_placeholder_without_a_value_stays_readable() -> None:
    assert fill("CUDA_HOME={cuda_home} MAX_JOBS={jobs}", {"jobs": "3"}) == "CUDA_HOME=<cuda home> MAX_JOBS=3"


def test_the_page_of_failures_is_what_the_script_writes() -> None:
    page = runpy.run_path(str(ROOT / "scripts/write_failures.py"))["page"]()
    assert (ROOT / "docs/failures.md").read_text(encoding="utf-8") == page, "run scripts/write_failures.py"


def _messages() -> Iterator[tuple[str, str]]:
    text = Path(__file__).with_name("messages.txt").read_text(encoding="utf-8")
    for block in text.removeprefix("== ").split("\n== "):
        rule, _, logs = block.partition("\n")
        yield from ((rule, log) for log in logs.split("\n--\n"))


def test_every_message_is_given_its_class_first() -> None:
    named = [(rule, classes(log), log) for rule, log in _messages()]
    assert len(named) > 600
    first = [(rule, findings[0] if findings else "unknown", log) for rule, findings, log in named]
    assert [(rule, answer, log) for rule, answer, log in first if answer != rule] == []


def test_what_a_log_says_is_never_put_inside_the_quotes_of_a_command() -> None:
    # Values of a log are quoted when they are put in: between quotes, those would end there, and bare the value to a shell.
    inside = re.compile(r"""(?:^|\s)(?:'[^']*|"[^"]*)\{(?:name|library|header|file|symbol|message)\}""")
    fixes = [fix for rule in load_rules() for fix in (*rule.fix, *rule.fix_windows, *rule.fix_amd)]
    assert [fix for fix in fixes if inside.search(fix.partition("   #")[0])] == []
