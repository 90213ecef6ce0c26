import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flashdepot.diagnose.case import Intention, blocker, misfit, verdict
from flashdepot.diagnose.examine import examine, forewarn
from flashdepot.errors import FlashdepotError
from flashdepot.host.surroundings import dangling
from flashdepot.kernels.fa2 import parse_unit
from flashdepot.model.diagnosis import Diagnosis, Verdict
from flashdepot.model.environment import Torch
from flashdepot.model.host import CudaToolkit, Disk, Gpu, HostRecord
from flashdepot.model.request import AnyCuda, LibraryRequest
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.resolve.project import library_request
from flashdepot.toolchain import choose
from flashdepot.toolchain.choose import choose_toolchain
from flashdepot.toolchain.zig import Zig
from support.recipes import architectures
from support.toolkits import make_host, make_toolkit

GB = 10**9
A100 = Gpu("NVIDIA A100", Architecture(8, 0), 80 * GB)
H100 = Gpu("NVIDIA H100", Architecture(9, 0), 80 * GB)

WORDS = st.text(max_size=12)
VERSIONS = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda n: Version(".".join(map(str, n))))


def chosen_from(*names: str) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names), WORDS)


BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(0, 2**45),
    bool: st.booleans(),
    type(None): st.none(),
    Path: WORDS.map(lambda word: Path(f"/{word}")),
    Version: VERSIONS,
    Architecture: st.builds(Architecture, st.integers(1, 15), st.integers(0, 9)),
    Platform: st.builds(
        Platform,
        st.sampled_from(["linux", "windows", "darwin", "freebsd"]),
        st.sampled_from(["x86_64", "aarch64", "riscv64"]),
    ),
    Torch: st.builds(
        Torch,
        version=st.sampled_from(["2.8.0+cu128", "1.13.1", "nightly", "2.9.0a0+git123", ""]),
        cuda=st.none() | VERSIONS,
        hip=st.none() | WORDS,
        cxx11_abi=st.none() | st.booleans(),
        folder=WORDS,
    ),
}
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "implementation": st.sampled_from(["CPython", "PyPy"]),
    "container": st.sampled_from([None, "", "docker", "kubernetes", "systemd-nspawn"]),
    "libc_name": st.sampled_from([None, "", "glibc", "musl"]),
    "use": st.sampled_from(["temp", "cache", "depot"]),
    "kind": st.sampled_from(["g++", "clang++", "cl", "icpx"]),
    "module": st.sampled_from(["flash_attn_2_cuda", "flash_attn_cuda"]),
    "dangling": st.just(()),
    "packages": chosen_from("flash-attn", "pip", "uv", "ninja"),
    "variables": chosen_from("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVCC_FLAGS"),
    "programs": st.none() | chosen_from("git", "cargo", "cmake"),
}
"""Fields whose values doctor knows."""


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Every value that a type of a record can have."""
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    inside = [any_of(part) for part in get_args(hint) if part is not ...]
    if get_origin(hint) is tuple:
        return st.lists(inside[0], max_size=3).map(tuple)
    if get_origin(hint) in {dict, Mapping}:
        return st.dictionaries(*inside, max_size=3)
    if inside:
        return st.one_of(inside)
    hints = get_type_hints(hint)
    return st.builds(
        hint, **{name: BY_NAME[name] if name in BY_NAME else any_of(hints[name]) for name in hint.__struct_fields__}
    )


records = any_of(HostRecord)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=records, intention=st.sampled_from(Intention), arch=st.sampled_from([None, "90", "80,120", "universal"]))
def test_doctor_has_an_answer_for_every_record(record: HostRecord, intention: Intention, arch: str | None) -> None:
    findings = examine(record, intention, library_request(arch=arch))
    assert verdict(findings) in {0, 3, 4}
    assert (verdict(findings) == 0) == all(f.verdict is not Verdict.MISFIT for f in findings)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=records)
def test_every_record_survives_its_json(record: HostRecord) -> None:
    assert HostRecord.from_json(record.to_json()) == record


def build_findings(host: HostRecord, arch: str = "80") -> list[Diagnosis]:
    return [f for f in examine(host, Intention.BUILD, library_request(arch=arch)) if f.verdict is Verdict.MISFIT]


@pytest.mark.parametrize(
    ("releases", "driver", "arch"),
    [
        (("12.8",), None, "80"),
        (("11.8",), "560.35", "80"),
        (("13.0",), "560.35", "80"),
        (("12.4",), "575.51", "120"),
        ((), "580.65", "90"),
        (("12.4", "12.8"), "575.51", "120"),
        ((), None, "90"),
        (("13.0",), None, "99"),
    ],
)
def test_doctor_foresees_in_the_same_words_what_choosing_the_toolchain_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, releases: tuple[str, ...], driver: str | None, arch: str
) -> None:
    make_toolkit(tmp_path / "provided", "13.0")
    monkeypatch.setattr(choose, "pinned_toolkit", lambda _: SimpleNamespace(provide=lambda *_: tmp_path / "provided"))
    monkeypatch.setattr("flashdepot.toolchain.zig.provide_zig", lambda *_: Zig(tmp_path / "zig", "0.14.1"))
    monkeypatch.setattr(choose, "provided_version", lambda: Version("13.0.99"))
    host = make_host(*(make_toolkit(tmp_path / r, r) for r in releases), gcc=(), driver=driver)
    found = build_findings(host, arch)
    raised = what_choosing_raises(host, arch, tmp_path)
    wanted = [(e.message, e.hint, e.exit_code) for e in raised]
    assert [(f.observed, f.fix, verdict([f])) for f in found] == wanted


def what_choosing_raises(host: HostRecord, arch: str, folder: Path) -> list[FlashdepotError]:
    try:
        choose_toolchain(
            AnyCuda.AUTO, host, architectures(arch), driver=host.driver, folder=folder, work=folder, on_file=print
        )
    except FlashdepotError as error:
        return [error]
    return []


def test_an_architecture_that_no_gpu_here_runs_blocks_running_and_not_building() -> None:
    host = make_host(gpus=(H100,), driver="580.65")
    assert [f.id for f in examine(host, Intention.RUN, library_request(arch="80")) if f.verdict is Verdict.MISFIT] == [
        "no-kernel-image"
    ]
    assert verdict(examine(host, Intention.BUILD, library_request(arch="80"))) == 0


@pytest.mark.parametrize(
    ("platform", "arch", "class_id"),
    [("linux-x86_64", "99", "unsupported-gpu-arch"), ("windows-x86_64", "90", "nvcc-not-found")],
)
def test_what_stops_a_build_has_the_class_of_its_cause(platform: str, arch: str, class_id: str) -> None:
    host = make_host(platform=platform, compilers=())
    assert [f.id for f in build_findings(host, arch)] == [class_id]


@pytest.mark.parametrize(
    ("memory", "unit", "said"),
    [
        (4 * GB, "flash_bwd_hdim256_bf16_sm80", ["oom-killed"]),
        (4 * GB, "flash_fwd_hdim64_bf16_sm80", []),
        (1 * GB, "flash_fwd_hdim64_bf16_sm80", ["oom-killed"]),
    ],
)
def test_before_compiling_memory_is_judged_by_the_units_to_compile(memory: int, unit: str, said: list[str]) -> None:
    parsed = parse_unit(unit)
    assert parsed is not None
    host = replace(make_host(), memory=memory)
    assert [f.id for f in forewarn(host, frozenset({parsed}))] == said


def test_one_full_disk_behind_two_folders_is_said_once() -> None:
    disks = tuple(Disk(use, f"/{use}", GB // 2, "ext4", "1") for use in ("temp", "cache", "depot"))
    host = replace(make_host(), disks=disks)
    assert [f.id for f in forewarn(host, frozenset())] == ["disk-full"]


def test_what_cannot_be_fixed_decides_the_exit_code() -> None:
    missing = blocker("a", "A.", "B.", "C")
    hopeless = misfit("a", "A.", "B.", "C")
    assert [verdict([]), verdict([missing]), verdict([missing, hopeless])] == [0, 3, 4]


RECORDS = Path(__file__).parent / "records"
HOST = replace(make_host(), memory=30 * 10**9, cores=8)


def said(record: HostRecord, word: str) -> list[str]:
    return [f.observed for f in examine(record, Intention.BUILD, LibraryRequest()) if word in f.observed]


def with_variables(variables: Mapping[str, str]) -> HostRecord:
    return replace(HOST, variables=variables)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_JOBS", "999"),
        ("MAX_JOBS", "0"),
        ("MAX_JOBS", "abc"),
        ("MAX_JOBS", "-1"),
        ("TORCH_CUDA_ARCH_LIST", "banana"),
        ("TORCH_CUDA_ARCH_LIST", "8.0;90"),
        ("FLASH_ATTN_CUDA_ARCHS", "banana"),
        ("FLASH_ATTN_CUDA_ARCHS", "8.0"),
        ("CUDA_COMPUTE_CAP", "9.0"),
        ("CUDA_COMPUTE_CAP", "80;90"),
    ],
)
def test_a_value_that_its_reader_takes_for_something_else_is_said(name: str, value: str) -> None:
    assert [name in seen and value in seen for seen in said(with_variables({name: value}), name)] == [True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_JOBS", "4"),
        ("TORCH_CUDA_ARCH_LIST", "8.0;9.0a+PTX 12.0"),
        ("TORCH_CUDA_ARCH_LIST", "Ampere;Hopper"),
        ("TORCH_CUDA_ARCH_LIST", ""),
        ("FLASH_ATTN_CUDA_ARCHS", "80;90;120"),
        ("CUDA_COMPUTE_CAP", "120"),
        ("CUDA_HOME", ""),
    ],
)
def test_a_value_that_is_right_or_empty_is_not(name: str, value: str) -> None:
    assert said(with_variables({name: value}), name) == []


def test_a_variable_that_names_what_is_not_there_is_said_once_for_what_reads_it(tmp_path: Path) -> None:
    environment = {"CXX": str(tmp_path / "no-g++"), "NVCC_CCBIN": str(tmp_path), "TMPDIR": str(tmp_path / "no-tmp")}
    missing = dangling(environment)
    assert missing == ("TMPDIR", "CXX")
    record = replace(HOST, variables=environment, dangling=missing)
    assert len(said(record, "not there")) == 2
    assert HostRecord.from_json(record.to_json()).dangling == missing


def test_cuda_home_of_one_release_with_the_nvcc_of_another_on_path_is_said() -> None:
    home = CudaToolkit("/cuda-12.6", Version("12.6"), "CUDA_HOME", missing=())
    path = CudaToolkit("/cuda-12.4", Version("12.4"), "PATH", missing=())
    assert said(replace(HOST, toolkits=(home, path)), "the nvcc on PATH is 12.4")
    assert not said(replace(HOST, toolkits=(home, replace(path, version=Version("12.6")))), "on PATH")


def test_condas_own_python_is_not_taken_for_the_systems() -> None:
    record = HostRecord.from_json(json.loads((RECORDS / "conda-environment.json").read_text()))
    assert record.python is not None
    base = replace(record, python=replace(record.python, managed=True))
    (found,) = (f for f in examine(base, Intention.INSTALL, LibraryRequest()) if f.id == "externally-managed")
    assert "is conda's own" in found.observed
    assert str(found.fix).startswith("conda create --name work python=3.")
    assert "venv" not in str(found.fix)


def test_a_temporary_folder_without_room_is_said_before_an_installation() -> None:
    small = Disk("temp", "/small", 20 * 10**6, "tmpfs", "1")
    found = examine(replace(HOST, disks=(small,)), Intention.INSTALL, LibraryRequest())
    assert [f.fix for f in found if "/small" in f.observed] == [
        "Free space there, or use another folder: export TMPDIR=DIR"
    ]
