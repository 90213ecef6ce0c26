from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord, action_key, read_intent
from support.depots import find_unit, flip_bit, make_older, make_record, record_unit, rewrite_record, truncate


def test_a_recorded_run_is_found_while_its_inputs_are_the_same(depot, tmp_path):
    (tmp_path / "x.o").write_bytes(b"object")
    record = depot.actions.record(make_record(), tmp_path / "x.o")
    found = find_unit(Depot(depot.root), record)
    assert found == record
    assert found.object.size == 6
    assert depot.blobs.verified_path(found.object.digest).read_bytes() == b"object"


@pytest.mark.parametrize("now", [{"{upstream}/a.h": "9" * 64}, {"{upstream}/b.h": None}])
def test_a_changed_or_missing_input_makes_it_a_miss(depot, tmp_path, now):
    record = record_unit(depot, tmp_path)
    digests = {**record.inputs, **now}
    assert depot.actions.find(record.intent_key, digests.get) is None


def test_going_back_to_earlier_sources_finds_the_earlier_object(depot, tmp_path):
    source = tmp_path / "x.o"
    records = []
    for version in range(20):
        source.write_bytes(b"object %d" % version)
        records.append(depot.actions.record(make_record(**{"a.h": f"{version:064x}"}), source))
    assert find_unit(depot, records[19]) == records[19]
    assert find_unit(depot, records[4]) == records[4]
    assert find_unit(depot, records[3]) is None, "only the newest sixteen are remembered"


def test_runs_of_one_intent_that_are_recorded_at_the_same_time_are_all_found(depot, tmp_path):
    (tmp_path / "x.o").write_bytes(b"object")

    def record(number: int) -> ActionRecord:
        return Depot(depot.root).actions.record(make_record(**{"a.h": f"{number:064x}"}), tmp_path / "x.o")

    with ThreadPoolExecutor(4) as pool:
        records = list(pool.map(record, range(16)))
    assert all(find_unit(depot, r) == r for r in records)


def test_recording_a_run_again_does_not_list_it_twice(depot, tmp_path):
    for content in (b"one", b"two"):
        record = record_unit(depot, tmp_path, content=content)
    assert read_intent(depot.layout.intent(record.intent_key)) == [record.action_key]
    found = find_unit(depot, record)
    assert found
    assert depot.blobs.verified_path(found.object.digest).read_bytes() == b"two"


@pytest.mark.parametrize("damage", [flip_bit, truncate, Path.unlink])
def test_a_run_whose_object_is_damaged_or_missing_counts_as_not_recorded(depot, tmp_path, damage):
    record = record_unit(depot, tmp_path)
    damage(depot.layout.blob(record.object.digest))
    assert find_unit(Depot(depot.root), record) is None
    record_unit(depot, tmp_path)
    assert find_unit(Depot(depot.root), record)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"schema": 1}', '{"schema": 2, "actions": []}'])
@pytest.mark.parametrize("which", ["intent", "action"])
def test_a_damaged_record_is_reported_and_compiling_again_fixes_it(depot, problems, tmp_path, which, content):
    record = record_unit(depot, tmp_path)
    path = depot.layout.intent(record.intent_key) if which == "intent" else depot.layout.action(record.action_key)
    path.write_text(content)
    assert find_unit(depot, record) is None
    assert str(path) in problems[0]
    record_unit(depot, tmp_path)
    assert find_unit(depot, record)


def test_a_record_cannot_name_a_file_outside_the_blobs(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    path = depot.layout.action(record.action_key)
    rewrite_record(path, lambda data: data | {"outputs": {"object": {"digest": "../" * 21 + "x", "size": 1}}})
    assert find_unit(depot, record) is None


def test_a_hit_marks_record_and_object_as_used(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    paths = [depot.layout.action(record.action_key), depot.layout.blob(record.object.digest)]
    for path in paths:
        make_older(path, hours=100)
    before = [path.stat().st_mtime for path in paths]
    assert find_unit(Depot(depot.root), record)
    assert all(path.stat().st_mtime > then + 99 * 3600 for path, then in zip(paths, before, strict=True))


def test_the_action_key_depends_on_intent_and_inputs_and_not_on_their_order():
    inputs = {"a.h": "1" * 64, "b.h": "2" * 64}
    key = action_key("0" * 64, inputs)
    assert key == action_key("0" * 64, dict(reversed(inputs.items())))
    assert key != action_key("1" * 64, inputs)
    assert key != action_key("0" * 64, inputs | {"a.h": "3" * 64})


def test_an_unwritable_depot_still_answers(small_disk, make_read_only, tmp_path):
    record = record_unit(Depot(small_disk / "depot"), tmp_path)
    make_older(small_disk / "depot" / "actions", hours=1)
    make_older(Depot(small_disk / "depot").layout.action(record.action_key), hours=1)
    make_read_only()
    found = find_unit(Depot(small_disk / "depot"), record)
    assert found
    Depot(small_disk / "depot").blobs.link_or_copy(found.object.digest, tmp_path / "there.o")
    assert (tmp_path / "there.o").read_bytes() == b"object"
