from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flashdepot.build.schedule import Capacity, Job, foresee, next_job, remaining_seconds

GB = 10**9


def test_the_longest_job_that_fits_starts_first() -> None:
    jobs = [Job("short", 10, 2 * GB), Job("long", 100, 6 * GB), Job("middle", 50, 3 * GB)]
    assert next_job(jobs, [], Capacity(2, 8 * GB)) == jobs[1]
    assert next_job(jobs[:1] + jobs[2:], [jobs[1]], Capacity(2, 8 * GB)) == jobs[0]


def test_nothing_starts_when_every_core_is_taken() -> None:
    assert next_job([Job("a", 1, 1)], [Job("b", 1, 1)], Capacity(1, GB)) is None


def test_a_job_too_large_for_the_memory_waits_for_the_others_and_then_runs_alone() -> None:
    large, small = Job("large", 500, 20 * GB), Job("small", 1, GB)
    capacity = Capacity(4, 8 * GB)
    assert next_job([large, small], [], capacity) == small
    assert next_job([large], [small], capacity) is None
    assert next_job([large], [], capacity) == large


def test_a_job_that_was_killed_for_memory_runs_alone_with_a_higher_estimate() -> None:
    again = Job("a", 100, 4 * GB).after_out_of_memory()
    assert (again.peak, again.alone, again.tries) == (6 * GB, True, 1)
    other = Job("b", 10, GB)
    assert next_job([again, other], [], Capacity(4, 64 * GB)) == other
    assert next_job([again], [other], Capacity(4, 64 * GB)) is None
    assert next_job([other], [again], Capacity(4, 64 * GB)) is None


def test_the_time_left_is_that_of_the_schedule_itself() -> None:
    jobs = [Job(f"j{i}", 10, GB) for i in range(4)]
    assert remaining_seconds(jobs, [], Capacity(2, 64 * GB)) == 20
    assert remaining_seconds(jobs, [], Capacity(2, GB)) == 40
    assert remaining_seconds(jobs, [(Job("r", 30, GB), 25.0)], Capacity(1, 64 * GB)) == 45
    assert remaining_seconds([], [], Capacity(2, GB)) == 0


def test_what_lies_ahead_is_all_jobs_their_time_and_the_most_memory_at_one_moment() -> None:
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
def test_every_job_starts_and_the_peaks_never_exceed_the_memory_but_for_one_alone(
    jobs: list[Job], cores: int, memory: int
) -> None:
    waiting, running, started = list(jobs), [], []
    capacity = Capacity(cores, memory)
    while waiting or running:
        while job := next_job(waiting, running, capacity):
            waiting.remove(job)
            running.append(job)
            started.append(job)
            assert len(running) <= cores
            assert len(running) == 1 or sum(j.peak for j in running) <= memory
            assert len(running) == 1 or not any(j.alone for j in running)
        assert running, "a schedule must never stand still"
        running.pop(0)
    assert sorted(j.name for j in started) == sorted(j.name for j in jobs)


@given(jobs_strategy, st.integers(1, 8), st.integers(GB, 30 * GB))
def test_the_time_left_lies_between_perfect_sharing_and_one_after_another(
    jobs: list[Job], cores: int, memory: int
) -> None:
    left = remaining_seconds(jobs, [], Capacity(cores, memory))
    total = sum(j.seconds for j in jobs)
    assert total / cores <= left * (1 + 1e-9)
    assert left <= total * (1 + 1e-9)
