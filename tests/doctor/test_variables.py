"""Absurd values of the variables that steer builds are said, and right ones are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.diagnose import Intention, examine
from flashdepot.host.surroundings import dangling
from flashdepot.model.host import CudaToolkit, Disk, HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.target import Version
from support.toolkits import make_host

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


def test_a_temporary_folder_without_room_is_said_before_an_installation() -> None:
    small = Disk("temp", "/small", 20 * 10**6, "tmpfs", "1")
    found = examine(replace(HOST, disks=(small,)), Intention.INSTALL, LibraryRequest())
    assert [f.fix for f in found if "/small" in f.observed] == [
        "Free space there, or use another folder: export TMPDIR=DIR"
    ]
