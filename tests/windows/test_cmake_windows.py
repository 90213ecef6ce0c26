"""A program of another project, built with our CMake package for Windows and run under wine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.link.library import LinkKind, cmake_lines, read_library
from support.tools import Wine, needs, run_program
from support.windows_library import ANSWER, forge_library, needs_llvm

pytestmark = [
    needs_llvm,
    needs("cmake", "x86_64-w64-mingw32-gcc"),
]

PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(program C)
add_executable(program program.c)
{lines}
get_target_property(imported FlashAttention::shared IMPORTED_IMPLIB)
message(STATUS "import library: ${{imported}}")
"""
PROGRAM = """
#include <flash_attention.h>
#include <stdio.h>
int main(void) { printf("status %d", (int)fa_fwd(0)); return 0; }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library's folder in a path with blanks."""
    work = tmp_path / "work"
    work.mkdir()
    return forge_library(tmp_path / "my libraries" / "flash attention", work).root


def test_a_program_finds_the_import_library_and_runs_with_the_dll(wine: Wine, library: Path, tmp_path: Path) -> None:
    project = tmp_path / "a program"
    project.mkdir()
    lines = cmake_lines(read_library(library), LinkKind.SHARED)
    (project / "CMakeLists.txt").write_text(PROJECT.format(lines=lines.replace("your_program", "program")))
    (project / "program.c").write_text(PROGRAM)
    settings = {
        "CMAKE_SYSTEM_NAME": "Windows",
        "CMAKE_SYSTEM_PROCESSOR": "AMD64",
        "CMAKE_C_COMPILER": "x86_64-w64-mingw32-gcc",
        "CMAKE_PREFIX_PATH": library,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    configure = run_program(["cmake", "-S", project, "-B", project / "build", *options])
    assert f"import library: {library}/lib/shared/flashattention.lib" in configure
    subprocess.run(["cmake", "--build", project / "build"], check=True, capture_output=True)
    without = wine.run("program.exe", cwd=project / "build")
    assert without.returncode != 0
    shutil.copy(library / "lib/shared/flashattention.dll", project / "build")
    done = wine.run("program.exe", cwd=project / "build")
    assert (done.returncode, done.stdout) == (0, f"status {ANSWER}")
