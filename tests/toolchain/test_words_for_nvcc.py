"""What nvcc makes of the words that actions have for it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from flashdepot.model.recipe import filled_in
from flashdepot.toolchain.nvcc import HOST_FLAGS, inspect


@pytest.mark.nvcc
@pytest.mark.parametrize("folder", ["plain", "My Projects", "a,b", "Jürgen's \\ $HOME ключ"])
def test_nvcc_hands_on_the_path_of_the_package_whatever_is_in_it(
    folder: str, quick_library: Path, real_depot: Path, tmp_path: Path
) -> None:
    assert quick_library
    roots = sorted((real_depot / "toolchains").glob("cuda-13*"))
    if not roots:
        pytest.skip("needs the nvcc that flashdepot provides")
    nvcc = inspect(roots[0])
    native = tmp_path / folder
    (native / "device").mkdir(parents=True)
    (native / "device/prelude.h").write_text("")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    words = [filled_in(word, {"native": str(native)}) for word in HOST_FLAGS]
    done = subprocess.run(
        [str(nvcc.program), "--dryrun", "-fatbin", "-arch=sm_80", *words, "kernel.cu", "-o", "kernel.fatbin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    preprocessing = [line.removeprefix("#$ ") for line in done.stderr.splitlines() if "prelude.h" in line]
    assert preprocessing
    for line in preprocessing:
        assert str(native / "device/prelude.h") in shlex.split(line)
