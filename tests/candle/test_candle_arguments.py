"""What run_mha makes of candle's arguments, and what becomes of an error."""

import re
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest
from candle_call import NAMES, V3, dense, packed, paged
from candle_recorder import compile_over_recorder, python_here

from flashdepot.link.candle_archive import SOURCES
from support.fa_abi import Dtype, Family, Flag, Status
from support.tools import assert_ends

STREAM = 0x5EED


@pytest.mark.parametrize(("form", "source"), [(35, "35"), (37, "37"), (45, "45"), (V3, "v3")])
def test_each_list_has_the_arguments_that_it_is_named_after_in_the_order_of_the_tests(form, source) -> None:
    text = (SOURCES / f"run_mha_{source}.c").read_text()
    declaration = re.search(r"void run_mha(?:_v3)?\((.*?)\) \{", text, re.DOTALL)
    assert declaration is not None
    assert len(declaration[1].split(",")) == len(NAMES[form]) == form


def test_a_dense_batch_arrives_as_it_was_sent(mha) -> None:
    sent = dense(stream=STREAM)
    assert mha(sent) == Status.OK
    args = mha.args()
    assert (args.batch, args.seqlen_q, args.seqlen_k, args.heads_q, args.heads_k, args.head_dim) == (
        2,
        100,
        200,
        4,
        2,
        64,
    )
    for name, tensor in (("q", args.q), ("k", args.k), ("v", args.v), ("o", args.o)):
        strides = (tensor.batch_stride, tensor.row_stride, tensor.head_stride)
        assert tensor.data == sent[name]
        assert strides == (sent[f"{name}_batch"], sent[f"{name}_row"], sent[f"{name}_head"])
    assert (args.lse, args.dtype, args.flags, args.device) == (sent["lse"], Dtype.BF16, 0, 3)
    assert args.scale == pytest.approx(64**-0.5)
    assert (args.total_q, args.total_k, args.cu_seqlens_q, args.workspace) == (0, 0, None, None)
    assert (args.softcap, args.dropout, args.num_splits, args.alibi_slopes) == (0, 0, 1, None)


@pytest.mark.parametrize(
    ("changes", "arrived"),
    [
        ({"is_bf16": 0}, {"dtype": Dtype.FP16}),
        ({"is_bf16": 1}, {"dtype": Dtype.BF16}),
        *(
            ({"d": 160, "d_rounded": n, "seqlen_q_rounded": n, "seqlen_k_rounded": n}, {"head_dim": 160})
            for n in (0, 32, 96, 4096)
        ),
        *(({"d": d}, {"head_dim": d}) for d in (8, 32, 64, 72, 96, 128, 160, 192, 224, 256)),
        *(({"alibi": 0x90000, "alibi_batch": n}, {"alibi_slopes": 0x90000, "alibi_batch_stride": n}) for n in (0, 4)),
    ],
    ids=str,
)
def test_each_number_arrives_and_what_candle_rounded_is_ignored(mha, changes, arrived) -> None:
    assert mha(dense(**changes)) == Status.OK
    args = mha.args()
    assert {name: getattr(args, name) for name in arrived} == arrived


def test_strides_that_need_all_32_bits_are_not_taken_for_negative_ones(mha) -> None:
    assert mha(dense(k_batch=0xFFFF_FFF8)) == Status.OK
    assert mha.args().k.batch_stride == 0xFFFF_FFF8


@pytest.mark.parametrize(
    ("left", "right", "causal", "flags"),
    [
        (-1, -1, 0, Flag(0)),
        (30, 0, 0, Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT),
        (0, 7, 0, Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT),
        (-1, 7, 0, Flag.WINDOW_RIGHT),
        (30, -1, 0, Flag.WINDOW_LEFT),
        (200, 0, 1, Flag.CAUSAL),
        (-1, 0, 1, Flag.CAUSAL),
    ],
)
def test_a_mask_is_the_one_that_was_asked_for(mha, left, right, causal, flags) -> None:
    assert mha(dense(left=left, right=right, is_causal=causal)) == Status.OK
    args = mha.args()
    assert Flag(args.flags) == flags
    assert args.window_left == (left if Flag.WINDOW_LEFT in flags else 0)
    assert args.window_right == (right if Flag.WINDOW_RIGHT in flags else 0)


@pytest.mark.parametrize("form", [37, 45])
def test_softcap_is_passed_on(load, form) -> None:
    mha = load(form)
    mha(dense(softcap=30.0))
    assert mha.args().softcap == 30.0


def test_a_packed_batch_has_its_cumulative_lengths(mha) -> None:
    assert mha(packed()) == Status.OK
    args = mha.args()
    assert (args.cu_seqlens_q, args.cu_seqlens_k, args.total_k) == (0x60000, 0x61000, 400)


def test_a_packed_batch_is_given_to_the_family_that_needs_no_number_of_rows(mha) -> None:
    mha(packed())
    packed_family = mha.args().family
    mha(dense())
    assert (packed_family, mha.args().family) == (Family.FA2, 0)


def test_only_the_longest_list_knows_the_rows_of_a_packed_batch_and_a_stream_but_the_legacy_default_one(load) -> None:
    seen = {}
    for form in (35, 37, 45):
        mha = load(form)
        mha(packed(stream=STREAM))
        seen[form] = mha.args().total_q, mha.args().stream
    # 1: lse is scratch of h + rows - 1 floats, which candle always has
    assert seen == {35: (1, None), 37: (1, None), 45: (150, STREAM)}


def test_pages_get_a_workspace_for_as_long_as_the_call_needs_it(load) -> None:
    mha = load(45)
    mha.reset(workspace=4096)
    assert mha(paged(stream=STREAM)) == Status.OK
    args = mha.args()
    assert (args.block_table, args.block_table_stride, args.page_size, args.total_k) == (0x80000, 5, 256, 0)
    assert args.k.batch_stride == 256 * 2 * 64
    assert mha.calls() == [
        f"cudaMallocAsync({STREAM},0,4096)",
        f"fa_fwd({STREAM},{0x70000},4096)",
        f"cudaFreeAsync({STREAM},{0x70000},0)",
    ]


@pytest.mark.parametrize("page_size", [1, 16, 32, 48, 256, 512])
def test_pages_of_any_size_go_to_the_library_and_to_its_fastest_family(load, page_size) -> None:
    mha = load(45)
    assert mha(paged(page_size=page_size)) == Status.OK
    assert (mha.args().page_size, mha.args().family) == (page_size, 0)


def test_run_mha_v3_arrives_as_it_was_sent_and_tells_the_rows_of_the_keys(load) -> None:
    mha = load(V3)
    assert mha(dense(stream=STREAM, is_causal=1, left=200, right=0, alibi=0x90000)) == Status.OK
    args = mha.args()
    assert (args.q.data, args.v.data, args.lse, args.stream) == (0x10000, 0x30000, 0x50000, STREAM)
    assert (args.batch, args.seqlen_q, args.seqlen_k, args.heads_k, args.head_dim) == (2, 100, 200, 2, 64)
    assert (args.flags, args.alibi_slopes, args.family) == (Flag.CAUSAL, 0x90000, 0)
    assert mha(packed(total_k=333)) == Status.OK
    assert (mha.args().total_q, mha.args().total_k, mha.args().family) == (150, 333, 0)


def test_run_mha_v3_names_the_crate_that_has_the_kernel_that_it_lacks(in_a_process) -> None:
    done = in_a_process(V3, dense(d=512))
    assert "d is 512, and flash-attention's own kernels end at head dim 256; candle-flash-attn has one" in done.stderr


def test_a_page_size_without_a_page_table_means_nothing(load) -> None:
    mha = load(45)
    for page_size in (-1, 0, 32):  # candle sends -1 for a dense and 0 for a packed batch
        assert mha(packed(page_size=page_size)) == Status.OK
        assert mha.args().page_size == 0


def test_work_on_other_streams_is_waited_for_when_that_was_asked_for(load, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_CANDLE_SYNCHRONIZE", "1")
    around = ["cudaDeviceSynchronize(0,0,0)", "fa_fwd(0,0,0)", "cudaDeviceSynchronize(0,0,0)"]
    for form, expected in ((35, around), (37, around), (45, ["fa_fwd(0,0,0)"])):
        mha = load(form)
        assert mha(dense()) == Status.OK
        assert mha.calls() == expected


BIG = {"b": 40, "seqlen_q": 8192, "seqlen_k": 8192, "h": 64, "h_k": 64, "d": 256}  # 5.4e9 elements
REFUSED: list[tuple[tuple[int, ...], Callable[..., dict[str, object]], dict[str, object], Status, str]] = [
    ((35, 37, 45), dense, {"d": 512}, Status.UNSUPPORTED, "d is 512, and flash-attention's own kernels end at"),
    ((35, 37, 45), dense, {"seqlen_k": 2**31}, Status.INVALID, "seqlen_k is 2147483648; allowed: at most 2147483647"),
    ((35, 37, 45), dense, {"scale": 0.0}, Status.INVALID, "softmax_scale is 0; allowed: positive numbers"),
    ((35, 37, 45), dense, {"is_causal": 1, "left": 9, "right": 0}, Status.INVALID, "the windows are 9 and 0"),
    ((35, 37, 45), dense, {"is_causal": 1}, Status.INVALID, "the windows are -1 and -1"),
    ((35, 37, 45), packed, {"cu_k": 0}, Status.INVALID, "one of cu_seqlens_q and cu_seqlens_k is NULL"),
    ((35, 37, 45), packed, {"q_row": 260}, Status.INVALID, "q_row_stride is 260; allowed: multiples of 8"),
    ((35, 37, 45), dense, {**BIG, "q_batch": 0}, Status.OK, ""),  # repeated, not cut
    ((35, 37, 45), dense, {**BIG, "q_row": 8, "q_batch": 2**17}, Status.INVALID, "q has 5368709120 elements"),
    ((37, 45), packed, {"unpadded_lse": 0}, Status.UNSUPPORTED, "unpadded_lse is 0 and cu_seqlens_q is set"),
    ((37, 45), dense, {"unpadded_lse": 1}, Status.UNSUPPORTED, "unpadded_lse is 1 and cu_seqlens_q is NULL"),
    ((45,), paged, {"page_size": 0}, Status.INVALID, "page_block_size is 0; allowed: positive numbers"),
    ((45,), dense, {"block_table": 1 << 20, "page_size": 256}, Status.UNSUPPORTED, "pages with a packed batch"),
    ((45,), packed, {"prefix_ranges": 64, "prefix_count": 2}, Status.UNSUPPORTED, "max_mm_prefix_ranges 2"),
    ((45,), packed, {"prefix_ranges": 64}, Status.UNSUPPORTED, "no kernel of flash-attention has prefix ranges"),
]
CASES = [pytest.param(form, *case[1:], id=f"{form}-{case[4] or 'runs'}") for case in REFUSED for form in case[0]]


@pytest.mark.parametrize(("form", "kind", "changes", "status", "text"), CASES)
def test_what_the_kernels_cannot_do_is_refused_before_anything_is_launched(
    in_a_process, form, kind, changes, status, text
) -> None:
    done = in_a_process(form, kind(**changes))
    assert text in done.stderr
    assert ("fa_fwd" in done.stdout) == (status is Status.OK)
    if done.returncode == 0:
        assert int(done.stdout.split("|")[0]) == status
    else:
        assert kind is packed  # whose output has no known length in the shorter lists
        assert form != 45
        assert done.stderr.rstrip().endswith("; aborting")


Caller = Callable[..., subprocess.CompletedProcess[str]]
O = 0x40000  # noqa: E741 - of dense()
DENSE_BYTES = 2 * 100 * 4 * 64 * 2


def test_a_refused_call_leaves_nan_a_line_and_a_status(in_a_process) -> None:
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
def test_the_whole_output_becomes_nan_on_the_stream_of_the_call(in_a_process, arguments, length, fails) -> None:
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
def test_an_output_of_unknown_extent_aborts(in_a_process, form, arguments) -> None:
    done = in_a_process(form, arguments, fails="fa_fwd")
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "run_mha (flashdepot): FA_STATUS_CUDA: text of the library; aborting\n"


@pytest.mark.parametrize("value", ["abort", "ABORT", "typo"])
def test_programs_that_would_rather_stop_are_stopped(in_a_process, value) -> None:
    done = in_a_process(45, dense(), fails="fa_fwd", FLASHDEPOT_CANDLE_ON_ERROR=value)
    assert_ends(done, -signal.SIGABRT, "aborting")


def test_an_output_that_cannot_be_filled_aborts(in_a_process) -> None:
    done = in_a_process(45, dense(d=512), fails="cudaMemsetAsync")
    assert_ends(done, -signal.SIGABRT, "d is 512")


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        ("cudaMallocAsync", "cudaMallocAsync answered with error 2, out of memory"),
        ("fa_fwd", "text of the library"),
        ("cudaFreeAsync", "cudaFreeAsync answered with error 2, out of memory"),
    ],
)
def test_a_workspace_that_cannot_be_allocated_is_an_error_and_others_are_freed(in_a_process, fails, text) -> None:
    done = in_a_process(45, paged(stream=STREAM), fails=fails, workspace=4096)
    assert text in done.stderr
    assert "the output was filled with NaN" in done.stderr
    assert ("cudaFreeAsync" in done.stdout) == (fails != "cudaMallocAsync")


def test_a_call_that_works_says_so_after_one_that_did_not(mha, capfd) -> None:
    assert mha(dense(scale=0.0)) == Status.INVALID
    assert mha(dense()) == Status.OK
    assert mha.error == "softmax_scale is 0; allowed: positive numbers"
    assert capfd.readouterr().err.count("\n") == 1


def test_each_thread_has_its_own_status(mha, capfd) -> None:
    seen: list[int] = []
    assert mha(dense(scale=0.0)) == Status.INVALID
    thread = threading.Thread(target=lambda: seen.append(mha.library.fa_candle_last_status()))
    thread.start()
    thread.join()
    assert seen == [Status.OK]


@pytest.mark.nvcc
def test_what_a_real_library_has_not_is_refused_with_its_own_words(quick_library, tmp_path) -> None:
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
