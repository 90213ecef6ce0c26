import shutil
import sys

import pytest

from flashdepot.host import probe
from flashdepot.host.tools import find_compilers, find_toolkits, identify_compiler
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Architecture
from support.toolkits import make_toolkit
from support.tools import posix, tool


@pytest.mark.slow
def test_this_machine_has_a_record_that_survives_its_json() -> None:
    record = probe()
    assert HostRecord.from_json(record.to_json()) == record
    assert record.cores >= 1
    assert record.memory > 10**8


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [{"schema": 99}, {"platform": "nowhere"}, {"cores": "many"}, {"gpus": [{}]}, {"libc": "new"}],
)
def test_a_damaged_record_is_refused(damage) -> None:
    with pytest.raises(Exception, match=r"schema|not a platform|a whole number|missing|not a version"):
        HostRecord.from_json({**probe().to_json(), **damage})


def test_a_toolkit_behind_a_script_on_the_path_is_found_where_it_is(tmp_path, monkeypatch) -> None:
    make_toolkit(tmp_path / "cuda-12.8", "12.8")
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {tmp_path}/cuda-12.8/bin/nvcc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    first = find_toolkits()[0]
    assert (first.root, str(first.version), first.found_by) == (str(tmp_path / "cuda-12.8"), "12.8.99", "PATH")


def test_an_nvcc_whose_toolkit_is_not_where_it_says_lacks_everything(tmp_path, monkeypatch) -> None:
    make_toolkit(tmp_path / "cuda", "12.8")
    (tmp_path / "cuda").rename(tmp_path / "moved")
    monkeypatch.setenv("PATH", f"{tmp_path}/moved/bin:/bin:/usr/bin")
    found = find_toolkits()[0]
    assert (found.root, str(found.version), found.missing) == (str(tmp_path / "cuda"), "12.8.99", ("bin/nvcc",))


def test_cuda_home_wins_over_the_path(tmp_path, monkeypatch) -> None:
    make_toolkit(tmp_path / "home", "12.4")
    make_toolkit(tmp_path / "path", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin:/bin:/usr/bin")
    found = [(str(t.version), t.found_by) for t in find_toolkits()]
    assert found[:2] == [("12.4.99", "CUDA_HOME"), ("12.8.99", "PATH")]


@pytest.mark.slow
def test_a_compiler_says_what_it_is() -> None:
    program = tool("g++")
    compiler = identify_compiler(program)
    assert compiler is not None
    assert compiler.kind == "g++"
    assert compiler.version.major >= 5
    assert identify_compiler(sys.executable) is None


@pytest.mark.slow
def test_nvcc_ccbin_comes_first_and_links_to_one_compiler_count_once(tmp_path, monkeypatch) -> None:
    program = tool("g++")
    mine = tmp_path / "my-g++"
    mine.symlink_to(program)
    monkeypatch.setenv("NVCC_CCBIN", str(mine))
    found = find_compilers()
    assert found[0].path == str(mine)
    assert len([c for c in found if c.version == found[0].version and c.kind == "g++"]) == 1


def test_a_machine_without_any_compiler_has_none(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NVCC_CCBIN", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    assert find_compilers() == ()


def test_a_toolkit_says_what_it_lacks_and_which_compilers_it_accepts(tmp_path, monkeypatch) -> None:
    make_toolkit(tmp_path / "cuda", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    whole = find_toolkits()[0]
    assert (whole.missing, whole.newest_gcc, whole.newest_clang) == ((), 14, 19)
    assert Architecture(12, 0) in (whole.codes or ())
    (tmp_path / "cuda/include/cuda_fp16.h").unlink()
    (tmp_path / "cuda/lib64/libcudart_static.a").unlink()  # which nothing on Linux links
    assert find_toolkits()[0].missing == ("include/cuda_fp16.h",)


@posix("stand-in for a compiler: it is a shell script")
def test_programs_are_asked_at_the_same_time(tmp_path, monkeypatch) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    for n in (9, 10):
        program = tmp_path / f"g++-{n}"
        other = meeting / str(19 - n)
        program.write_text(
            f"#!/bin/sh\n: > {meeting}/{n}\nfor i in $(seq 100); do [ -e {other} ] && break; sleep 0.05; done\n"
            f"[ -e {other} ] && echo '#define __GNUC__ {n}'\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    for name in ("NVCC_CCBIN", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    for name in ("seq", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name, path="/usr/bin:/bin") or "")
    assert [c.version.major for c in find_compilers()] == [10, 9]
