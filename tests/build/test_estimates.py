from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.schedule import History, prior
from flashdepot.model.recipe import Estimate, Recipe
from flashdepot.model.selection import Pass, Selection, Unit
from flashdepot.model.target import parse_list
from support.recipes import make_action, make_recipe, make_unit


def prior_of(unit: Unit, recipe: Recipe) -> Estimate:
    return prior(make_action(unit.name, unit=unit), recipe)


def test_the_first_expectation_is_what_was_measured_elsewhere() -> None:
    assert prior_of(make_unit(), make_recipe("80")).seconds == pytest.approx(132.3)
    assert prior_of(make_unit(), make_recipe("80")).peak == pytest.approx(3.51e9)


def test_a_unit_without_features_is_expected_to_take_a_third() -> None:
    recipe = make_recipe("80")
    bare = replace(recipe, selection=Selection(recipe.selection.units, frozenset()))
    assert 38 < prior_of(make_unit(), bare).seconds < 50


def test_more_architectures_cost_an_assembler_run_each_or_all_of_it_again() -> None:
    one, four = prior_of(make_unit(), make_recipe("80")), prior_of(make_unit(), make_recipe("80,90,100,120"))
    native = prior_of(make_unit(), make_recipe("80,90,100,120", front_end="native"))
    assert 1.4 < four.seconds / one.seconds < 2
    assert native.seconds == pytest.approx(4 * one.seconds)


def test_a_head_dim_that_was_never_measured_is_expected_to_cost_as_the_next_larger_one() -> None:
    recipe = make_recipe("80")
    assert prior_of(make_unit(head_dim=160), recipe) == prior_of(make_unit(head_dim=192), recipe)
    assert prior_of(make_unit(head_dim=512, pass_=Pass.BWD), recipe).peak > 6e9


def test_what_was_seen_on_this_machine_replaces_the_expectation(tmp_path: Path) -> None:
    recipe, action = make_recipe(), make_action()
    history = History(tmp_path / "estimates.json")
    history.add(action, recipe, 77.0, 5 * 10**9)
    history.save()
    learnt = History(tmp_path / "estimates.json").estimate(action, recipe)
    assert (learnt.seconds, learnt.peak) == (77.0, 5 * 10**9)
    other = replace(recipe, target=replace(recipe.target, sass=parse_list("80")))
    assert History(tmp_path / "estimates.json").estimate(action, other).seconds != 77.0


def test_two_builds_keep_each_others_measurements(tmp_path: Path) -> None:
    recipe, first, second = make_recipe(), make_action(), make_action("flash_fwd_hdim32_bf16_sm80")
    one, two = History(tmp_path / "e.json"), History(tmp_path / "e.json")
    one.add(first, recipe, 1.0, 1)
    two.add(second, recipe, 2.0, 2)
    one.save()
    two.save()
    both = History(tmp_path / "e.json")
    assert (both.estimate(first, recipe).seconds, both.estimate(second, recipe).seconds) == (1.0, 2.0)


def test_a_damaged_history_costs_nothing_but_accuracy(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text("{")
    assert History(tmp_path / "e.json").estimate(make_action(), make_recipe("80")).seconds > 100
