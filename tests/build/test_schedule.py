"""What is compiled when: jobs and memory, what they are expected to take, and how long is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flashdepot.build.schedule import Capacity, History, Job, foresee, next_job, prior
from flashdepot.model.recipe import Estimate, Recipe
from flashdepot.model.selection import Pass, Selection, Unit
from support.recipes import architectures, make_action, make_recipe, make_unit

GB = 10**9


def test_the_longest_job_that_fits_starts_first() -> None:
    jobs = [Job("short", 10, 2 * GB), Job("long", 100, 6 * GB), Job("middle", 50, 3 * GB)]
    assert next_job(jobs, [], Capacity(2, 8 * GB)) == jobs[1]
    assert next_job(jobs[:1] + jobs[2:], [jobs[1]], Capacity(2, 8 * GB)) == jobs[0]


def test_nothing_starts_when_every_core_is_taken() -> None:
    assert next_job([Job("a", 1, 1)], [Job("b", 1, 1)], Capacity(1, GB)) is None


def test_a_job_too_large_for_the_memory_waits_for_the_others_and_then_runs_by_itself() -> None:
    large, small = Job("large", 500, 20 * GB), Job("small", 1, GB)
    capacity = Capacity(4, 8 * GB)
    assert next_job([large, small], [], capacity) == small
    assert next_job([large], [small], capacity) is None
    assert next_job([large], [], capacity) == large


def test_a_job_that_was_killed_for_memory_runs_by_itself_with_a_higher_estimate() -> None:
    again = Job("a", 100, 4 * GB).after_out_of_memory()
    assert (again.peak, again.by_itself, again.tries) == (6 * GB, True, 1)
    other = Job("b", 10, GB)
    assert next_job([again, other], [], Capacity(4, 64 * GB)) == other
    assert next_job([again], [other], Capacity(4, 64 * GB)) is None
    assert next_job([other], [again], Capacity(4, 64 * GB)) is None


def test_the_time_left_is_that_of_the_schedule_itself() -> None:
    jobs = [Job(f"j{i}", 10, GB) for i in range(4)]
    assert foresee(jobs, [], Capacity(2, 64 * GB)).seconds == 20
    assert foresee(jobs, [], Capacity(2, GB)).seconds == 40
    assert foresee(jobs, [(Job("r", 30, GB), 25.0)], Capacity(1, 64 * GB)).seconds == 45
    assert foresee([], [], Capacity(2, GB)).seconds == 0


def test_what_is_ahead_is_all_jobs_their_time_and_the_most_memory_at_one_moment() -> None:
    jobs = [Job("a", 30, 2 * GB), Job("b", 20, 3 * GB), Job("c", 10, 4 * GB)]
    both = foresee(jobs, [], Capacity(2, 64 * GB))
    assert (both.jobs, both.seconds, both.peak) == (frozenset("abc"), 30, 6 * GB)
    assert foresee(jobs, [], Capacity(1, 64 * GB)).peak == 4 * GB
    assert foresee(jobs, [], Capacity(3, 64 * GB)).peak == 9 * GB
    assert foresee([], [], Capacity(2, GB)).peak == 0
    assert [foresee(jobs, [], Capacity(3, memory * GB)).at_once for memory in (1, 5, 64)] == [1, 2, 3]


jobs_strategy = st.lists(
    st.builds(Job, st.uuids().map(str), st.floats(1, 300), st.integers(1, 10 * GB), st.booleans()),
    max_size=12,
    unique_by=lambda job: job.name,
)


@given(jobs_strategy, st.integers(1, 8), st.integers(GB, 30 * GB))
def test_every_job_starts_and_the_peaks_never_exceed_the_memory_except_for_a_single_one(jobs, cores, memory) -> None:
    waiting, running, started = list(jobs), [], []
    capacity = Capacity(cores, memory)
    while waiting or running:
        while job := next_job(waiting, running, capacity):
            waiting.remove(job)
            running.append(job)
            started.append(job)
            assert len(running) <= cores
            assert len(running) == 1 or sum(j.peak for j in running) <= memory
            assert len(running) == 1 or not any(j.by_itself for j in running)
        assert running, "a schedule must never stand still"
        running.pop(0)
    assert sorted(j.name for j in started) == sorted(j.name for j in jobs)


@given(jobs_strategy, st.integers(1, 8), st.integers(GB, 30 * GB))
def test_the_time_left_is_between_perfect_sharing_and_one_after_another(jobs, cores, memory) -> None:
    left = foresee(jobs, [], Capacity(cores, memory)).seconds
    total = sum(j.seconds for j in jobs)
    assert total / cores <= left * (1 + 1e-9)
    assert left <= total * (1 + 1e-9)


def prior_of(unit: Unit, recipe: Recipe) -> Estimate:
    return prior(make_action(unit.name, unit=unit), recipe)


def test_the_first_expectation_is_what_was_measured_elsewhere() -> None:
    assert prior_of(make_unit(), make_recipe("80")).seconds == pytest.approx(132.3)
    assert prior_of(make_unit(), make_recipe("80")).peak == pytest.approx(3.51e9)


def test_a_unit_without_features_is_expected_to_take_a_third() -> None:
    recipe = make_recipe("80")
    bare = replace(recipe, selection=Selection(recipe.selection.units, frozenset()))
    assert 38 < prior_of(make_unit(), bare).seconds < 50


def test_more_architectures_cost_an_assembler_run_each() -> None:
    one, four = prior_of(make_unit(), make_recipe("80")), prior_of(make_unit(), make_recipe("80,90,100,120"))
    assert 1.4 < four.seconds / one.seconds < 2


def test_a_head_dim_that_was_never_measured_is_expected_to_cost_as_the_next_larger_one() -> None:
    recipe = make_recipe("80")
    assert prior_of(make_unit(head_dim=160), recipe) == prior_of(make_unit(head_dim=192), recipe)
    assert prior_of(make_unit(head_dim=512, pass_=Pass.BWD), recipe).peak > 6e9


def test_a_measurement_on_this_machine_replaces_the_expectation(tmp_path) -> None:
    recipe, action = make_recipe(), make_action()
    history = History(tmp_path / "estimates.json")
    history.add(action, recipe, 77.0, 5 * 10**9)
    history.save()
    learnt = History(tmp_path / "estimates.json").estimate(action, recipe)
    assert (learnt.seconds, learnt.peak) == (77.0, 5 * 10**9)
    other = replace(recipe, target=replace(recipe.target, sass=architectures("80")))
    assert History(tmp_path / "estimates.json").estimate(action, other).seconds != 77.0


def test_two_builds_keep_each_others_measurements(tmp_path) -> None:
    recipe, first, second = make_recipe(), make_action(), make_action("flash_fwd_hdim32_bf16_sm80")
    one, two = History(tmp_path / "e.json"), History(tmp_path / "e.json")
    one.add(first, recipe, 1.0, 1)
    two.add(second, recipe, 2.0, 2)
    one.save()
    two.save()
    both = History(tmp_path / "e.json")
    assert (both.estimate(first, recipe).seconds, both.estimate(second, recipe).seconds) == (1.0, 2.0)


def test_a_damaged_history_costs_nothing_but_accuracy(tmp_path) -> None:
    (tmp_path / "e.json").write_text("{")
    assert History(tmp_path / "e.json").estimate(make_action(), make_recipe("80")).seconds > 100


def test_a_machine_with_less_memory_than_is_left_free_has_none_and_no_less() -> None:
    assert Capacity.next_to_others(1, 400_000_000).memory == 0
