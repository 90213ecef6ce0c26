"""Two copies of FlashAttention in one process, torch's and ours, do not disturb each other."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.fa_abi import Contents, Dtype, Pass

PROGRAM = Path(__file__).parent / "two_copies.py"


@cache
def run(library: Path, order: str) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAM), str(library / "lib/shared/libflashattention.so.1"), order]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "No available kernel" in done.stderr:
        pytest.skip("this torch has no flash attention of its own for this GPU")
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def quick_units(contents: Contents) -> None:
    if not {(Pass.FWD, Dtype.BF16, 64, causal) for causal in (False, True)} <= contents.units:
        pytest.skip("this library has no forward pass of bf16 and head dim 64")


@pytest.mark.parametrize("order", ["torch-first", "ours-first"])
def test_both_stay_right_whichever_was_loaded_first(quick_units: None, library_folder: Path, order: str) -> None:
    found = run(library_folder, order)
    assert 0 < found["theirs"] <= 1
    assert 0 < found["ours"] <= 1


@pytest.mark.parametrize("order", ["torch-first", "ours-first"])
def test_torch_computes_the_same_bits_as_by_itself(quick_units: None, library_folder: Path, order: str) -> None:
    assert run(library_folder, order)["digest"] == run(library_folder, "torch-alone")["digest"]
