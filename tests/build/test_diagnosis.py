from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from flashdepot.build.engine import compile_error, killed_for_memory
from flashdepot.errors import CompileError, MissingToolError


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (-9, ""),
        (137, ""),
        (9, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
        (1, "g++: fatal error: Killed signal terminated program cc1plus"),
        (1, "Catastrophic error: out of memory"),
        (2, "cc1plus: out of memory allocating 65536 bytes"),
        (1, "terminate called after throwing an instance of 'std::bad_alloc'"),
    ],
)
def test_a_compiler_that_ran_out_of_memory_is_recognized(status: int, log: str) -> None:
    assert killed_for_memory(status, log)


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (1, "x.cu(3): error: identifier is undefined"),
        (11, "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)"),
        (4, ""),
    ],
)
def test_other_failures_are_not_blamed_on_memory(status: int, log: str) -> None:
    assert not killed_for_memory(status, log)


def test_the_first_error_is_reported_and_not_what_follows_from_it(tmp_path: Path) -> None:
    log = "a.h(9): warning #177-D: unused\na.cu(3): error: no such thing\n1 error detected\nmake: stopped\n"
    error = compile_error("unit", 2, log, tmp_path / "unit.log")
    assert isinstance(error, CompileError)
    assert error.message.endswith("a.cu(3): error: no such thing")
    assert str(tmp_path / "unit.log") in error.hint


@pytest.mark.parametrize("log", ["", "ptxas fatal : Could not write: No space left on device"])
def test_a_full_disk_is_named_even_when_the_message_was_lost_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(70 * 10**6, 35 * 10**6, 35 * 10**6))
    error = compile_error("unit", 4, log, tmp_path / "unit.log")
    assert isinstance(error, MissingToolError)
    assert "35 MB are free" in error.message
    assert "--depot DIR" in error.hint
