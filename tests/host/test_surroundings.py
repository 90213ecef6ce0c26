"""What surrounds a program: memory that control groups leave, containers, drivers, disks."""

from pathlib import Path

import psutil
import pytest

from flashdepot.facts.gpus import cuda_of_ptx, newest_cuda
from flashdepot.host import surroundings
from flashdepot.host.probe import nvidia_devices
from flashdepot.host.surroundings import (
    container,
    is_wsl,
    libc_name,
    memory_facts,
    usable_cores,
    usable_memory,
    variables,
)
from flashdepot.model.target import Version
from support.tools import posix, write_files


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", 'engine="podman-5.4.0"\n', "podman"),
        ("var/run/secrets/kubernetes.io/serviceaccount/token", "", "kubernetes"),
        ("proc/1/environ", "PATH=/bin\0container=lxc\0", "lxc"),
        ("proc/1/cgroup", "12:memory:/docker/0123abcd\n", "docker"),
        ("proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n", "kubernetes"),
        ("proc/1/cgroup", "0::/init.scope\n", ""),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path, name, text, kind) -> None:
    assert container(write_files(tmp_path, {name: text}), {}) == kind


def test_a_pod_is_known_by_its_environment(tmp_path) -> None:
    assert container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "kubernetes"
    assert container(tmp_path, {}) == ""


@pytest.mark.parametrize(
    ("version", "wsl"),
    [
        ("Linux version 5.15.167.4-microsoft-standard-WSL2 (root@f9c826d3017f) (gcc (GCC) 11.2.0)", True),
        ("Linux version 6.8.0-60-generic (buildd@lcy02-amd64-054)", False),
    ],
)
def test_wsl_is_known_by_its_kernel(tmp_path, version, wsl) -> None:
    assert is_wsl(write_files(tmp_path, {"proc/version": version})) is wsl


@posix("C library that a record names")
def test_this_machine_has_the_c_library_that_its_record_says(tmp_path) -> None:
    assert libc_name(tmp_path) == "glibc"


def test_only_variables_that_steer_builds_are_recorded() -> None:
    found = variables({"CUDA_HOME": "/cuda", "API_TOKEN": "secret", "HOME": "/home/me"})
    assert found == {"CUDA_HOME": "/cuda"}


@pytest.mark.parametrize(
    ("driver", "system", "cuda"),
    [
        ("580.65.06", "linux", "13.0"),
        ("570.124.06", "linux", "12.8"),
        ("535.183.01", "linux", "12.2"),
        ("470.256.02", "linux", "11.4"),
        ("551.61", "windows", "12.4"),
        ("522.06", "windows", "11.8"),
        ("610.43.02", "linux", "13.3"),
        ("999.1", "linux", "13.4"),
        ("390.157", "linux", None),
        ("580.1", "darwin", None),
    ],
)
def test_a_driver_serves_the_cuda_of_its_branch(driver, system, cuda) -> None:
    assert newest_cuda(Version(driver), system) == (Version(cuda) if cuda else None)


@pytest.mark.parametrize(
    ("version", "cuda"), [((7, 8), "11.8"), ((8, 5), "12.5"), ((8, 7), "12.8"), ((9, 0), "13.0"), ((1, 8), None)]
)
def test_the_version_of_ptx_names_the_cuda_that_first_knew_it(version, cuda) -> None:
    assert cuda_of_ptx(version) == (Version(cuda) if cuda else None)


def test_nvidia_gpus_are_counted_on_the_bus_and_their_sound_devices_are_not(tmp_path) -> None:
    for name, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x10de", "0x030200"),
        ("0000:00:02.0", "0x8086", "0x030000"),
    ):
        write_files(tmp_path, {f"{name}/vendor": vendor + "\n", f"{name}/class": kind + "\n"})
    assert nvidia_devices(tmp_path) == 2
    assert nvidia_devices(tmp_path / "none") is None


@posix("table of mounts")
def test_a_disk_is_that_of_the_nearest_folder_that_exists_and_has_its_type(tmp_path) -> None:
    types = {"/": "overlay", f"{tmp_path}/with blank": "tmpfs"}
    (tmp_path / "with blank").mkdir()
    found = surroundings.look("temp", tmp_path / "with blank" / "not" / "there", types)
    assert found is not None
    assert (found.filesystem, found.free > 0, found.path) == ("tmpfs", True, str(tmp_path / "with blank/not/there"))
    other = surroundings.look("cache", tmp_path, types)
    assert other is not None
    assert other.filesystem == "overlay"


def test_the_limit_of_the_control_group_is_a_fact(tmp_path) -> None:
    groups = {"groups/box/memory.max": "1000000000\n", "groups/box/memory.current": "5\n"}
    write_files(tmp_path, {"membership": "0::/box\n", **groups})
    facts = memory_facts(tmp_path / "groups", tmp_path / "membership")
    assert facts.limit == 10**9
    assert facts.total >= facts.available > 0
    assert memory_facts(tmp_path / "none", tmp_path / "none").limit is None


def test_a_system_that_does_not_count_swap_has_none(monkeypatch) -> None:
    def refused() -> None:
        raise RuntimeError("PdhAddEnglishCounterW failed. Performance counters may be disabled.")

    monkeypatch.setattr(psutil, "swap_memory", refused)
    assert memory_facts().swap == 0


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "membership"
    path.write_text("0::/user/build\n")
    return path


@pytest.fixture
def plenty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  90000000 kB\nMemAvailable:  62500000 kB\n")
    monkeypatch.setattr(surroundings, "_MEMORY", meminfo)


@pytest.mark.usefixtures("plenty")
def test_without_control_groups_what_is_available_counts(tmp_path) -> None:
    assert usable_memory(tmp_path / "none", tmp_path / "none") == 64 * 10**9


@pytest.mark.usefixtures("plenty")
def test_a_group_leaves_its_limit_less_what_is_used_without_cache(tmp_path, membership) -> None:
    group = tmp_path / "cgroup" / "user" / "build"
    write(
        group, memory__max="8000000000", memory__current="3000000000", memory__stat="anon 1\ninactive_file 1000000000"
    )
    assert usable_memory(tmp_path / "cgroup", membership) == 6 * 10**9


@pytest.mark.usefixtures("plenty")
def test_a_limit_on_a_parent_group_applies_to_those_inside(tmp_path, membership) -> None:
    root = tmp_path / "cgroup"
    write(root / "user" / "build", memory__max="max", memory__current="1")
    write(root / "user", memory__max="5000000000", memory__current="1000000000", memory__stat="")
    assert usable_memory(root, membership) == 4 * 10**9


@pytest.mark.usefixtures("plenty")
def test_the_older_control_groups_are_read_too(tmp_path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("9:cpu,cpuacct:/box\n5:memory:/box\n")
    root = tmp_path / "cgroup"
    write(root / "memory" / "box", memory__limit_in_bytes="7000000000", memory__usage_in_bytes="2000000000")
    write(root / "cpu" / "box", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert usable_memory(root, membership) == 5 * 10**9
    assert usable_cores(root, membership) == 1


@pytest.mark.usefixtures("plenty")
def test_a_group_without_a_limit_restricts_nothing(tmp_path, membership) -> None:
    write(tmp_path / "cgroup" / "user" / "build", memory__max="max", memory__current="5", cpu__max="max 100000")
    assert usable_memory(tmp_path / "cgroup", membership) == 64 * 10**9
    assert usable_cores(tmp_path / "cgroup", membership) == usable_cores(tmp_path / "none", tmp_path / "none")


@pytest.mark.usefixtures("plenty")
def test_a_quota_of_less_than_a_core_still_leaves_one(tmp_path, membership) -> None:
    write(tmp_path / "cgroup" / "user" / "build", cpu__max="50000 100000")
    assert usable_cores(tmp_path / "cgroup", membership) == 1
