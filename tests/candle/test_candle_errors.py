"""run_mha returns void: what happens instead of an error code, and that no output can be taken for a result."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from candle_call import dense, packed, paged
from candle_recorder import Recorded, compile_over_recorder, python_here

from support.fa_abi import Status

Caller = Callable[..., subprocess.CompletedProcess[str]]
STREAM = 0x5EED
O = 0x40000  # noqa: E741 - of dense()
DENSE_BYTES = 2 * 100 * 4 * 64 * 2


def test_a_refused_call_leaves_nan_a_line_and_a_status(in_a_process: Caller) -> None:
    done = in_a_process(37, dense(d=512))
    assert done.returncode == 0
    line = "d is 512, and flash-attention's own kernels end at head dim 256"
    assert done.stderr.startswith(f"run_mha (flashdepot): FA_STATUS_UNSUPPORTED: {line}")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("; the output was filled with NaN\n")
    status, *calls, error = done.stdout.strip().split("|")
    assert int(status) == Status.UNSUPPORTED
    assert calls == [f"cudaMemsetAsync(0,{O},{2 * 100 * 4 * 512 * 2})"]
    assert error.startswith(line)


@pytest.mark.parametrize(
    ("arguments", "length"),
    [
        (dense(stream=STREAM), DENSE_BYTES),
        (packed(stream=STREAM), 150 * 4 * 64 * 2),
        (paged(stream=STREAM), 150 * 4 * 64 * 2),
        (dense(b=1, stream=STREAM, o_batch=0), DENSE_BYTES // 2),
    ],
    ids=["dense", "packed", "paged", "one-sequence"],
)
@pytest.mark.parametrize("fails", ["fa_supports", "fa_fwd", "cudaGetDevice"])
def test_the_whole_output_becomes_nan_on_the_stream_of_the_call(
    in_a_process: Caller, arguments: dict[str, object], length: int, fails: str
) -> None:
    done = in_a_process(45, arguments, fails=fails, workspace=64 if arguments["block_table"] else 0)
    assert done.returncode == 0, done.stderr
    assert f"cudaMemsetAsync({STREAM},{O},{length})" in done.stdout
    assert ("no CUDA-capable device" if fails == "cudaGetDevice" else "text of the library") in done.stderr


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        (35, packed()),
        (37, packed()),
        (45, dense(o_head=128, o_row=4 * 128, o_batch=100 * 4 * 128)),
        (45, dense(o_batch=100 * 4 * 64 + 8)),
        (45, dense(o=0)),
    ],
    ids=["packed-35", "packed-37", "apart", "padded", "null"],
)
def test_an_output_of_unknown_extent_aborts(in_a_process: Caller, form: int, arguments: dict[str, object]) -> None:
    done = in_a_process(form, arguments, fails="fa_fwd")
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "run_mha (flashdepot): FA_STATUS_CUDA: text of the library; aborting\n"


@pytest.mark.parametrize("value", ["abort", "ABORT", "typo"])
def test_programs_that_would_rather_stop_are_stopped(in_a_process: Caller, value: str) -> None:
    done = in_a_process(45, dense(), fails="fa_fwd", FLASHDEPOT_CANDLE_ON_ERROR=value)
    assert done.returncode == -signal.SIGABRT
    assert "aborting" in done.stderr


def test_an_output_that_cannot_be_filled_aborts(in_a_process: Caller) -> None:
    done = in_a_process(45, dense(d=512), fails="cudaMemsetAsync")
    assert done.returncode == -signal.SIGABRT
    assert "d is 512" in done.stderr


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        ("cudaMallocAsync", "cudaMallocAsync answered with error 2, out of memory"),
        ("fa_fwd", "text of the library"),
        ("cudaFreeAsync", "cudaFreeAsync answered with error 2, out of memory"),
    ],
)
def test_a_workspace_that_cannot_be_had_is_an_error_and_one_that_was_had_is_given_back(
    in_a_process: Caller, fails: str, text: str
) -> None:
    done = in_a_process(45, paged(stream=STREAM), fails=fails, workspace=4096)
    assert text in done.stderr
    assert "the output was filled with NaN" in done.stderr
    assert ("cudaFreeAsync" in done.stdout) == (fails != "cudaMallocAsync")


def test_a_call_that_works_says_so_after_one_that_did_not(mha: Recorded, capfd: pytest.CaptureFixture[str]) -> None:
    assert mha(dense(scale=0.0)) == Status.INVALID
    assert mha(dense()) == Status.OK
    assert mha.error == "softmax_scale is 0; allowed: positive numbers"
    assert capfd.readouterr().err.count("\n") == 1


def test_each_thread_has_its_own_status(mha: Recorded, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    assert mha(dense(scale=0.0)) == Status.INVALID
    thread = threading.Thread(target=lambda: seen.append(mha.library.fa_candle_last_status()))
    thread.start()
    thread.join()
    assert seen == [Status.OK]


@pytest.mark.nvcc
def test_what_a_real_library_has_not_is_refused_with_its_own_words(quick_library: Path, tmp_path: Path) -> None:
    shared = quick_library / "lib" / "shared" / "libflashattention.so.1"
    real = compile_over_recorder(45, tmp_path / "libreal.so", "-DREAL_LIBRARY", str(shared))
    code = (
        "import ctypes, sys; from candle_call import Mha, dense\n"
        f"ctypes.CDLL({str(shared)!r}, mode=ctypes.RTLD_GLOBAL)\n"
        f"mha = Mha(ctypes.CDLL({str(real)!r}), 45)\n"
        "print([mha(dense(**changes)) for changes in ({'d': 128}, {'softcap': 9.0}, {'h_k': 3}, {'left': 5})])"
    )
    done = python_here(code)
    assert done.stdout.strip() == str([2, 2, 1, 2]), done.stderr
    for words in ("head dim 128 bf16 forward is not in this library", "built without", "heads_q is 4 and heads_k is 3"):
        assert words in done.stderr
