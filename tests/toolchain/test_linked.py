from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashdepot.errors import CompileError, MissingToolError
from flashdepot.process.run import Finished
from flashdepot.toolchain.linked import disk_full, require


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/ld: final link failed: No space left on device",
        "ar: libflashattention.a: Disk quota exceeded",
    ],
)
def test_a_full_disk_is_no_fault_of_the_objects(tmp_path: Path, said: str) -> None:
    with pytest.raises(MissingToolError, match="filled up while it was linked"):
        require(Finished(("ld",), 1, "", said), tmp_path / "libflashattention.so.1")


def test_what_a_linker_refuses_is_still_said(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="undefined reference"):
        require(Finished(("ld",), 1, "", "ld: error: undefined reference to `f'"), tmp_path / "lib.so")
    assert disk_full("lib.so", "linked", "Bus error", tmp_path) is None, "there is space here"


def test_a_linker_on_a_disk_that_is_full_says_so(small_disk: Path) -> None:
    """With a real linker, which maps its output into memory on some systems, and is ended by a signal there."""
    source = small_disk / "big.c"
    source.write_text("char big[4000000] = {1};\n")
    command = ["gcc", "-shared", "-fPIC", "-o", str(small_disk / "lib.so"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    with pytest.raises(MissingToolError, match="filled up"):
        require(Finished(tuple(command), done.returncode, done.stdout, done.stderr), small_disk / "lib.so")
