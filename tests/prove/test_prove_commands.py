"""`verify` and `bench`: around an interpreter that answers with recorded results, and over stand-ins for torch."""

import csv
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashdepot import prove
from flashdepot.cli import prove_commands
from flashdepot.kernels.fa4.speed import TABLE, read_table
from flashdepot.kernels.fa4.variants import HEAD_DIMS
from support.tools import assert_ends, flashdepot_here, posix

ROW = {"dtype": "bf16", "what": "forward, head dim 64", "error": 0.001, "bound": 0.004, "ok": True}
VERIFIED = {
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "flash_attn": "2.8.3.post2",
    "file": "/venv/flash_attn/__init__.py",
    "seconds": 3.2,
    "rows": [ROW, {"dtype": "fp16", "what": "kv_cache", "ok": None, "reason": "is not in this library"}],
}
MEASURED = {
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "dtype": "bf16",
    "rows": [
        {
            "pass": "forward",
            "head_dim": 64,
            "causal": causal,
            "length": length,
            "batch": 1,
            "milliseconds": {"flash_attn": 1.0, "torch flash": 1.1},
            "tflops": {"flash_attn": 330.0, "torch flash": 300.0},
        }
        for causal in (False, True)
        for length in (1024, 2048)
    ],
}


def answering(folder: Path, document: Any) -> str:
    """An interpreter that prints a document, whatever it is asked to run."""
    if os.name != "posix":
        pytest.skip("the stand-in for Python is a shell script")
    program = folder / "python"
    (folder / "answer.json").write_text(json.dumps(document))
    program.write_text(f'#!/bin/sh\necho "a warning of a library"\ncat "{folder}/answer.json"\n')
    program.chmod(0o755)
    return str(program)


def test_right_results_end_well_and_are_shown_with_their_bounds(tmp_path) -> None:
    done = flashdepot_here("verify", "--python", answering(tmp_path, VERIFIED))
    assert done.returncode == 0
    assert "right    bf16  forward, head dim 64" in done.stderr
    assert "error 1.0e-03, allowed 4.0e-03" in done.stderr
    assert "skipped  fp16  kv_cache: is not in this library" in done.stderr


def test_a_wrong_result_is_exit_code_6_and_named(tmp_path) -> None:
    wrong = {**VERIFIED, "rows": [ROW, {**ROW, "what": "backward", "error": 0.5, "ok": False}]}
    done = flashdepot_here("verify", "--python", answering(tmp_path, wrong), "--quiet")
    assert_ends(done, 6, "1 results are wrong; the first: WRONG    bf16  backward")


def test_an_environment_without_torch_is_exit_code_3() -> None:
    done = flashdepot_here("verify", "--python", sys.executable)
    assert_ends(done, 3, "has no torch", f"flashdepot doctor install --python {sys.executable}", "--python PY")


@posix("stand-in for Python: it is a shell script")
def test_a_gpu_that_cannot_be_used_says_so(tmp_path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "RuntimeError: Found no NVIDIA driver on your system." >&2\nexit 1\n')
    program.chmod(0o755)
    done = flashdepot_here("verify", "--python", str(program))
    assert_ends(done, 3, "No GPU could be used")


def test_speeds_are_shown_next_to_torchs_with_the_ratio(tmp_path) -> None:
    done = flashdepot_here("bench", "--python", answering(tmp_path, MEASURED))
    assert done.returncode == 0
    assert "330.0            300.0    1.10" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("forward")]) == 4


POINT = {"kind": "dense", "kernel": "fwd", "head_dim": 64, "mask": "full", "batch": 32, "seqlen": 512, "heads_q": 32,
         "heads_k": 8, "fa4": 388.8, "fa2": 278.0}  # fmt: skip
TUNED = {"gpu": "NVIDIA H200", "arch": 90, "torch": "2.11.0", "dtype": "bf16", "rows": [POINT, {**POINT, "mask": "causal", "fa2": 400.0}]}  # fmt: skip


def test_the_table_that_dispatch_reads_is_written_with_its_source(tmp_path) -> None:
    path = tmp_path / "families.csv"
    done = flashdepot_here("bench", "--tune", str(path), "--python", answering(tmp_path, TUNED))
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H200, torch 2.11.0, bf16, " in done.stderr
    assert "fa2 is the faster one at 1 of 2 points" in done.stderr
    assert f"export FLASH_ATTENTION_TABLE={path}" in done.stderr
    assert [(one.mask, one.fa4, one.fa2) for one in read_table(path)] == [
        ("full", 388.8, 278.0),
        ("causal", 388.8, 400.0),
    ]


def test_a_flash_attn_with_nothing_to_choose_writes_no_table(tmp_path) -> None:
    path = tmp_path / "families.csv"
    done = flashdepot_here("bench", "--tune", str(path), "--python", answering(tmp_path, {**TUNED, "rows": []}))
    assert (done.returncode, path.exists()) == (2, False)
    assert "no problem that both fa2 and fa4 can do here" in done.stderr


def test_a_head_dim_without_a_kernel_cannot_be_tuned(tmp_path) -> None:
    words = ("--tune", "families.csv", "--head-dims", "80")
    done = flashdepot_here("bench", "--python", answering(tmp_path, MEASURED), *words, cwd=tmp_path)
    assert_ends(done, 2, "'80' names a head dim without a kernel")


SCRIPTS = Path(prove.__file__).parent


def refuses(*numbers: int) -> tuple[SimpleNamespace, Callable[[], int]]:
    """our library, and a call of it that answers with the family in force, or refuses some of them."""
    library = SimpleNamespace(_family=0)

    def run() -> int:
        if library._family in numbers:
            raise RuntimeError("family is not in this library")
        return library._family

    return library, run


@pytest.fixture(params=["speed.py"])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    attributes: dict[str, dict[str, object]] = {
        "torch": dict.fromkeys(("Tensor", "dtype", "Generator", "bfloat16", "float16"), object),
        "torch.nn": {},
        "torch.nn.attention": {
            "SDPBackend": SimpleNamespace(FLASH_ATTENTION=1, EFFICIENT_ATTENTION=2),
            "sdpa_kernel": None,
        },
        "flash_attn": dict.fromkeys(("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")),
    }
    for name, values in attributes.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(SCRIPTS / request.param))


def test_each_family_is_timed_by_itself_where_a_library_has_two(script, monkeypatch) -> None:
    library, run = refuses()
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", SimpleNamespace(library=library))
    found = script["by_family"](run)
    assert {name: by() for name, by in found.items()} == {"fa4": 4, "fa2": 2}
    assert library._family == 0  # what is dispatched is timed as it was


@pytest.mark.parametrize("refused", [(4,), (2, 4)])
def test_a_library_of_one_family_is_timed_once(script, monkeypatch, refused) -> None:
    library, run = refuses(*refused)
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", SimpleNamespace(library=library))
    assert script["by_family"](run) == {}


def test_another_wheel_than_ours_is_timed_once(script, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", ModuleType("flash_attn_2_cuda"))
    assert script["by_family"](lambda: 1) == {}


def test_points_of_the_shipped_table_are_those_from_128_keys_on_that_are_measured_by_default(script) -> None:
    columns = ("kind", "kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k")
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    shipped = {tuple(row[name] for name in columns) for row in csv.DictReader(lines)}
    lengths = [int(word) for word in prove_commands.TUNED_LENGTHS.split(",")]
    found = script["problems"](HEAD_DIMS, [length for length in lengths if length >= 128])
    assert {tuple(str(row[name]) for name in columns) for row in found} == shipped


@pytest.mark.parametrize("script", ["numeric.py"], indirect=True)
@pytest.mark.parametrize(
    ("refusal", "left_out"),
    [
        ("head dim 256 bf16 forward is not in this library (it has: bf16 64); build it with: flashdepot get", True),
        ("fa4: it has no alibi_slopes; fa2: alibi_slopes is set, and this library was built without alibi", True),
        ("it has no alibi_slopes", True),
        ("cudaLaunchKernel: cudaErrorIllegalAddress (700)", False),
        ("q.stride is 0; expected at least 64", False),
    ],
)
def test_what_a_library_was_built_without_is_skipped_and_any_other_error_is_wrong(script, refusal, left_out) -> None:
    assert script["is_left_out"](refusal) is left_out
