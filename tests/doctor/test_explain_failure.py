from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.diagnose.explain import explained
from flashdepot.errors import CompileError
from flashdepot.model.host import HostCompiler, HostRecord
from flashdepot.model.target import Platform, Version

HOST = HostRecord(
    platform=Platform("linux", "x86_64"),
    os_name="Debian 13",
    libc=Version("2.41"),
    cores=8,
    memory=30 * 10**9,
    driver=None,
    gpus=(),
    toolkits=(),
    compilers=(HostCompiler("g++", "/usr/bin/g++-14", Version("14.2")),),
)


def test_a_failed_build_says_what_its_log_shows_and_where_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "unit.log"
    log.write_text("host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13")
    error = explained(CompileError("unit: the compiler ended with status 1", log=log), HOST)
    assert error.message == "unit: the compiler ended with status 1"
    assert "gnu-version-unsupported" in error.hint
    assert "/usr/bin/g++-14" in error.hint
    assert "sudo apt install g++-12" in error.hint
    assert str(log) in error.hint
    assert error.exit_code == 5


@pytest.mark.parametrize("text", ["", "widget.cu(3): error: no widget\n"])
def test_a_log_that_no_rule_knows_leaves_the_error_as_it_was(tmp_path: Path, text: str) -> None:
    log = tmp_path / "unit.log"
    log.write_text(text)
    error = CompileError("unit: failed", hint="flashdepot explain unit.log", log=log)
    assert explained(error, HOST) is error


def test_an_error_whose_output_was_not_kept_stays() -> None:
    error = CompileError("libflashattention.so cannot be linked")
    assert explained(error, HOST) is error
