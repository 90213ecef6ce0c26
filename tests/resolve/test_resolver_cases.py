"""What is chosen from the shipped catalog, case by case, and that docs/resolver.md says so."""

import re
from pathlib import Path

import pytest
from resolver_cases import CASES, choice_of, reasons_against

from flashdepot.files.documents import read_toml
from flashdepot.resolve.lock import Lock
from flashdepot.resolve.rules import RULES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_case_is_decided_as_written(case) -> None:
    decision = case.decision
    assert choice_of(decision) == case.values["choice"]
    assert list(decision.missing) == case.values.get("missing", [])


@pytest.mark.parametrize("case", [c for c in CASES if "rejected" in c.values], ids=str)
def test_the_rules_that_are_named_speak_against_the_others_and_no_more(case) -> None:
    for named, rules in case.values["rejected"].items():
        assert reasons_against(case, named) == {frozenset(rules)}


def test_every_candidate_is_counted_once() -> None:
    for case in CASES[::9]:
        decision = case.decision
        kept = len(decision.ranked) + len(decision.uncertain) + len(decision.misfits)
        assert kept + sum(rejection.count for rejection in decision.rejections) == decision.considered


def test_there_are_cases_enough_and_each_has_its_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


PAGE = Path(__file__).parents[2] / "docs" / "resolver.md"


def test_every_rule_is_in_the_table_in_its_order() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE) == [rule.id for rule in RULES]


def test_the_lock_that_is_shown_is_one(tmp_path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    name = re.findall(r'filename = "(.*)"', shown)[0].replace("+", "%2B")
    path = tmp_path / "flashdepot.lock"
    path.write_text(shown.replace("https://...", f"https://example.org/{name}").replace('"..."', f'"{"ab" * 32}"'))
    assert Lock.from_toml(read_toml(path)).wheel.published().torch == "2.8"
