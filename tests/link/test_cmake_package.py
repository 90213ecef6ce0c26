"""The CMake package: which requests it answers, and what it says when it cannot."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.tools import tool

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 240687188\n"

pytestmark = pytest.mark.nvcc


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Configure a project of these lines with a library on CMAKE_PREFIX_PATH."""
    tool("cmake")

    def run(library: Path, lines: str, *options: str, languages: str = "NONE") -> subprocess.CompletedProcess[str]:
        (tmp_path / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES {languages})\n{lines}\n"
        )
        command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DCMAKE_PREFIX_PATH={library}"]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", True),
        ("1", True),
        ("1.0", True),
        ("2", True),
        ("2.7", True),
        ("2.8.3", True),
        ("2.8.3 EXACT", True),
        ("2.6...<3", True),
        ("2.8...2.8.3", True),
        ("1.1", False),
        ("2.8 EXACT", False),
        ("2.9", False),
        ("3", False),
        ("2.0...<2.8.3", False),
    ],
)
def test_versions_are_those_of_flash_attention_and_1_is_the_c_abi(moved_library, configure, asked, found) -> None:
    done = configure(moved_library, f"find_package(FlashAttention {asked} REQUIRED COMPONENTS shared static)")
    assert (done.returncode == 0) is found, done.stderr
    if not found:
        assert "2.8.3" in done.stderr


def test_a_part_that_is_not_there_is_named(damageable_library, configure) -> None:
    (damageable_library / "lib/static/libflashattention.a").unlink()
    assert configure(damageable_library, "find_package(FlashAttention REQUIRED COMPONENTS shared)").returncode == 0
    done = configure(damageable_library, "find_package(FlashAttention REQUIRED COMPONENTS static)")
    assert done.returncode != 0
    assert "libflashattention.a is not there" in " ".join(done.stderr.split())
    assert (
        configure(
            damageable_library,
            "find_package(FlashAttention REQUIRED COMPONENTS shared OPTIONAL_COMPONENTS static)\n"
            "if(FlashAttention_static_FOUND)\nmessage(FATAL_ERROR found)\nendif()",
        ).returncode
        == 0
    )
    unknown = configure(damageable_library, "find_package(FlashAttention REQUIRED COMPONENTS python)")
    assert "There are shared and static" in " ".join(unknown.stderr.split())


def test_a_git_lfs_pointer_is_called_one(damageable_library, configure) -> None:
    for name in ("shared/libflashattention.so.1", "static/libflashattention.a"):
        (damageable_library / "lib" / name).write_text(POINTER)
    for asked in ("", "COMPONENTS static", "COMPONENTS shared"):
        done = configure(damageable_library, f"find_package(FlashAttention REQUIRED {asked})")
        assert done.returncode != 0
        assert "git lfs pull" in " ".join(done.stderr.split())


def test_a_library_for_another_cpu_is_skipped(moved_library, configure) -> None:
    done = configure(
        moved_library,
        "find_package(FlashAttention REQUIRED)",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=arm64",
    )
    assert done.returncode != 0
    assert "2.8.3 (linux-x86_64)" in done.stderr


def test_a_program_that_links_it_gets_no_cuda_runtime_and_no_cxx_run_time(moved_library, tmp_path, configure) -> None:
    lines = "find_package(FlashAttention 1 REQUIRED COMPONENTS static)\n"
    lines += "add_executable(p p.c)\ntarget_link_libraries(p PRIVATE FlashAttention::static)\n"
    (tmp_path / "p.c").write_text("int main(void) { return 0; }\n")
    done = configure(moved_library, lines, "-G", "Unix Makefiles", languages="C")
    assert done.returncode == 0, done.stderr
    command = (tmp_path / "build/CMakeFiles/p.dir/link.txt").read_text()
    assert "libflashattention.a" in command
    assert not [word for word in ("cudart", "stdc++") if word in command]


def test_the_package_may_be_asked_for_twice(moved_library, configure) -> None:
    done = configure(
        moved_library,
        "find_package(FlashAttention REQUIRED COMPONENTS static)\nfind_package(FlashAttention REQUIRED)\n"
        "if(NOT TARGET FlashAttention::shared)\nmessage(FATAL_ERROR shared)\nendif()",
    )
    assert done.returncode == 0, done.stderr
