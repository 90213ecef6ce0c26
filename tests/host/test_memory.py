from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.host import surroundings
from flashdepot.host.surroundings import usable_cores, usable_memory


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "membership"
    path.write_text("0::/user/build\n")
    return path


@pytest.fixture(autouse=True)
def plenty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  90000000 kB\nMemAvailable:  62500000 kB\n")
    monkeypatch.setattr(surroundings, "_MEMORY", meminfo)


def test_without_control_groups_what_is_available_counts(tmp_path: Path) -> None:
    assert usable_memory(tmp_path / "none", tmp_path / "none") == 64 * 10**9


def test_a_group_leaves_its_limit_less_what_is_used_but_cache_can_be_had_back(tmp_path: Path, membership: Path) -> None:
    group = tmp_path / "cgroup" / "user" / "build"
    write(
        group, memory__max="8000000000", memory__current="3000000000", memory__stat="anon 1\ninactive_file 1000000000"
    )
    assert usable_memory(tmp_path / "cgroup", membership) == 6 * 10**9


def test_a_limit_on_a_parent_group_applies_to_those_inside(tmp_path: Path, membership: Path) -> None:
    root = tmp_path / "cgroup"
    write(root / "user" / "build", memory__max="max", memory__current="1")
    write(root / "user", memory__max="5000000000", memory__current="1000000000", memory__stat="")
    assert usable_memory(root, membership) == 4 * 10**9


def test_the_older_control_groups_are_read_too(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("9:cpu,cpuacct:/box\n5:memory:/box\n")
    root = tmp_path / "cgroup"
    write(root / "memory" / "box", memory__limit_in_bytes="7000000000", memory__usage_in_bytes="2000000000")
    write(root / "cpu" / "box", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert usable_memory(root, membership) == 5 * 10**9
    assert usable_cores(root, membership) == 1


def test_a_group_without_a_limit_restricts_nothing(tmp_path: Path, membership: Path) -> None:
    write(tmp_path / "cgroup" / "user" / "build", memory__max="max", memory__current="5", cpu__max="max 100000")
    assert usable_memory(tmp_path / "cgroup", membership) == 64 * 10**9
    assert usable_cores(tmp_path / "cgroup", membership) == usable_cores(tmp_path / "none", tmp_path / "none")


def test_a_quota_of_less_than_a_core_still_leaves_one(tmp_path: Path, membership: Path) -> None:
    write(tmp_path / "cgroup" / "user" / "build", cpu__max="50000 100000")
    assert usable_cores(tmp_path / "cgroup", membership) == 1
