"""What a build compiles, in which order and how much at once, and what it says of a compiler that fails."""

import hashlib
import os
import time

import pytest

from build.bench import GB
from flashdepot.depot.verify import verify
from flashdepot.errors import CompileError
from flashdepot.kernels.fa2 import parse_unit
from flashdepot.model.limits import Limits
from support.tools import posix


def together(journal: list[str]) -> int:
    """The most compilers that ran at once."""
    running = most = 0
    for line in journal:
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    return most


def test_progress_moves_while_a_compiler_runs_and_never_goes_back(bench) -> None:
    for name in "ab":
        bench.source(f"{name}.src", "sleep 0.8\n")
    bench.build("ab", Limits(jobs=1, memory=64 * GB))
    fractions = bench.notes.fractions
    assert fractions == sorted(fractions)
    assert len(set(fractions)) > 3, "two compilations, and more than two steps"
    assert fractions[0] < 0.5
    assert 0.9 < fractions[-1] < 1, "linking is left"


def test_progress_counts_host_sides_and_other_sources_when_the_kernels_are_there(bench) -> None:
    unit = parse_unit("flash_fwd_hdim64_bf16_sm80")
    assert unit is not None

    def build() -> list[int]:
        bench.notes.states.clear()
        bench.build(
            ["kernel", "kernel-host", "layer"],
            Limits(jobs=1, memory=64 * GB),
            needs={"kernel-host": {"fatbin": "kernel"}},
            units={"kernel": unit},
        )
        assert {state.total for state in bench.notes.states} == {3}
        return [state.done for state in bench.notes.states]

    for name in ("kernel", "kernel-host", "layer"):
        bench.source(f"{name}.src", "sleep 0.3\n")
    assert build()[-1] == 3
    bench.source("kernel-host.src", "sleep 0.4\n# another\n")
    bench.source("layer.src", "sleep 0.4\n# another\n")
    seen = build()
    assert sorted(set(seen)) == [1, 2, 3], "one after the other"
    assert (seen[0], seen[-1]) == (1, 3)
    assert len({state.fraction for state in bench.notes.states}) > 3


def test_a_changed_header_recompiles_only_those_that_include_it(bench) -> None:
    bench.source("one.h", "1")
    bench.source("two.h", "2")
    bench.source("unused.h", "3")
    bench.source("a.src", "include one.h")
    bench.source("b.src", "include two.h")
    bench.build("ab")
    bench.source("unused.h", "4")
    assert bench.build("ab").compiled == frozenset()
    bench.source("two.h", "5")
    assert bench.build("ab").compiled == {"b"}
    bench.source("two.h", "2")
    assert bench.build("ab").compiled == frozenset(), "going back finds what was there before"


def test_an_object_that_was_damaged_is_made_again(bench) -> None:
    bench.source("a.src", "hello")
    digest = bench.build("a").actions["a"].object.digest
    blob = bench.depot.layout.blob(digest)
    blob.chmod(0o644)
    blob.write_text("hellO")
    assert bench.build("a").compiled == {"a"}
    assert not verify(bench.depot).problems


@pytest.mark.parametrize("looks", ["new", pytest.param("old", marks=posix("time of a file's change"))])
def test_a_source_that_changes_while_it_is_compiled_is_noticed_even_if_it_looks_old(bench, looks) -> None:
    bench.source("h.h", "old")
    changed = bench.folder / "src" / "h.h"
    age = f"\nage {changed}" if looks == "old" else ""
    bench.source("a.src", f"include h.h\nsleep 0.05\ntouch {changed}{age}")
    time.sleep(0.1)  # a change within the tick in which a file was last read cannot be seen
    with pytest.raises(CompileError, match="changed"):
        bench.build("a")


@pytest.mark.parametrize("header", ["inside", "outside"])
def test_sources_from_the_future_are_compiled_as_all_others(bench, header) -> None:
    """The machine's clock was set back, or a disk came from another machine."""
    place = bench.folder / ("src" if header == "inside" else "system")
    place.mkdir()
    (place / "h.h").write_text("1")
    for name in "abc":
        bench.source(f"{name}.src", f"include {place}/h.h\n# {name}")
    in_an_hour = time.time() + 3600
    for path in (place / "h.h", *(bench.folder / "src").iterdir()):
        os.utime(path, (in_an_hour, in_an_hour))
    assert bench.build("abc", Limits(jobs=1, memory=64 * GB)).compiled == {"a", "b", "c"}
    repeats = 0 if header == "inside" else 1
    assert len(bench.journal) == 2 * (3 + repeats), "what is outside the sources is known after one compile"
    assert bench.build("abc").compiled == frozenset()


def test_a_change_between_the_look_up_and_the_compile_is_recorded_as_what_the_compiler_read(bench) -> None:
    header = bench.folder / "src" / "h.h"
    bench.source("h.h", "old")
    bench.source("b.src", "include h.h")
    bench.build("b")
    bench.source("h.h", "newer")
    bench.source("a.src", f"touch {header}")
    outcome = bench.build("ab", Limits(jobs=1, memory=64 * GB))
    # b may be compiled once more: the change may be of the clock tick in which it was started.
    assert bench.journal[2:6] == ["start a", "end a", "start b", "end b"]
    made = bench.depot.layout.blob(outcome.actions["b"].object.digest).read_text()
    assert made.endswith("changed")
    assert outcome.actions["b"].inputs["{src}/h.h"] == hashlib.sha256(b"changed").hexdigest()


@pytest.mark.slow
def test_jobs_and_memory_bound_what_runs_together(bench) -> None:
    for name in "abcdef":
        bench.source(f"{name}.src", "sleep 0.5")
    bench.build("abcdef", Limits(jobs=3, memory=64 * GB))
    assert together(bench.journal) == 3
    (bench.folder / "journal").unlink()
    for name in "abcdef":
        bench.source(f"{name}.src", "sleep 0.51")
    bench.build("abcdef", Limits(jobs=6, memory=8 * GB), dict.fromkeys("abcdef", 3 * GB))
    assert together(bench.journal) == 2


def test_a_compiler_killed_for_memory_runs_again_by_itself_and_the_build_succeeds(bench) -> None:
    bench.source("a.src", f"sleep 0.1\ndie-once {bench.folder / 'died'}\nsleep 0.2")
    for name in "bcd":
        bench.source(f"{name}.src", "sleep 0.2")
    outcome = bench.build("abcd", Limits(jobs=4, memory=64 * GB))
    assert outcome.compiled == {"a", "b", "c", "d"}
    assert any("killed for memory; it will run again by itself" in note for note in bench.notes.said)
    journal = bench.journal
    again = len(journal) - 1 - journal[::-1].index("start a")
    assert journal[again : again + 2] == ["start a", "end a"], "nothing ran next to it"


def test_a_compiler_that_dies_even_by_itself_ends_the_build_with_what_to_do(bench) -> None:
    bench.source("a.src", "die")
    with pytest.raises(CompileError, match="killed for memory 4 times, the last time by itself") as caught:
        bench.build("a")
    assert "--head-dims" in caught.value.hint


def test_a_refused_source_reports_its_first_error_and_keeps_what_finished(bench) -> None:
    bench.source("a.src")
    bench.source("b.src", "sleep 0.2\nfail b.src(3): error: no such thing")
    with pytest.raises(
        CompileError, match=r"b: the compiler ended with status 1: b\.src\(3\): error: no such"
    ) as caught:
        bench.build("ab")
    log = caught.value.log
    assert str(log) in caught.value.hint
    assert "no such thing" in log.read_text()
    bench.source("b.src", "")
    assert bench.build("ab").compiled == {"b"}


def test_after_a_failure_nothing_new_starts_unless_asked_to(bench) -> None:
    for name in "abcd":
        bench.source(f"{name}.src", "fail error: bad" if name == "a" else "sleep 0.05")
    with pytest.raises(CompileError):
        bench.build("abcd", Limits(jobs=1, memory=64 * GB))
    assert bench.journal == ["start a"]
    with pytest.raises(CompileError):
        bench.build("abcd", Limits(jobs=1, memory=64 * GB, keep_going=True))
    assert {line for line in bench.journal if line.startswith("end")} == {"end b", "end c", "end d"}


def test_with_keep_going_every_failure_is_named(bench) -> None:
    for name in "abc":
        bench.source(f"{name}.src", f"fail error: {name} is bad" if name != "b" else "")
    with pytest.raises(CompileError, match="1 more failed: ") as caught:
        bench.build("abc", Limits(jobs=3, memory=64 * GB, keep_going=True))
    assert "a is bad" in caught.value.message
    assert "c is bad" in caught.value.message


def test_an_action_waits_for_what_it_needs_and_is_found_by_the_bytes_of_that(bench) -> None:
    bench.source("common.h", "1")
    bench.source("device.src", "include common.h\nsleep 0.1")
    bench.source("host.src")
    first = bench.build(["device", "host"], needs={"host": {"fatbin": "device"}})
    assert first.compiled == {"device", "host"}
    assert bench.journal == ["start device", "end device", "start host", "end host"]
    os.utime(bench.folder / "src" / "common.h")
    assert bench.build(["device", "host"], needs={"host": {"fatbin": "device"}}).compiled == frozenset()
    bench.source("device.src", "include common.h\nsleep 0.1\n# another result")
    assert bench.build(["device", "host"], needs={"host": {"fatbin": "device"}}).compiled == {"device", "host"}


def test_an_action_whose_need_failed_is_not_started_and_the_others_are(bench) -> None:
    bench.source("device.src", "fail error: bad")
    bench.source("host.src")
    bench.source("other.src", "sleep 0.2")
    limits = Limits(jobs=1, memory=64 * GB, keep_going=True)
    with pytest.raises(CompileError, match="device: the compiler ended"):
        bench.build(["device", "host", "other"], limits, needs={"host": {"fatbin": "device"}})
    assert "start host" not in bench.journal
    assert "end other" in bench.journal


def test_inputs_that_do_not_count_are_in_no_key(bench) -> None:
    bench.source("a.src", "include h.h")
    bench.source("h.h", "1")
    assert not bench.build("a", uncounted=("src",)).actions["a"].inputs
    bench.source("h.h", "2")
    assert bench.build("a", uncounted=("src",)).compiled == frozenset()
