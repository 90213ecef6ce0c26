"""What fa_fwd launches, seen by kernels that only record, and next to what upstream launches."""

import ctypes
import random
from typing import Any

import pytest

from support.fa_abi import Dtype, Flag, ForwardArgs, Pass, Status, Tensor, backward_args, forward_args
from support.stub_library import DEVICES, FEATURES, FULL, HEAD_DIMS, Selection, Stub, units_of

WORKSPACE = {"workspace": 0x7000_0000, "workspace_bytes": 1 << 40}

# Where the buffers are is the caller's business here and torch's there.
OURS_TO_CHOOSE = {"softmax_lse_ptr", "oaccum_ptr", "softmax_lseaccum_ptr"}


def seen_by_kernels(launch: dict[str, Any], ignored: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    """Leave out addresses, strides of one element, and what no kernel of the launch reads."""
    ignored = OURS_TO_CHOOSE | ignored
    for extent, dimension, tensors in (
        ("b", "batch", ("q", "k", "v", "o", "knew", "vnew")),
        ("seqlen_q", "row", ("q", "o")),
        ("h", "head", ("q", "o")),
        ("h_k", "head", ("k", "v", "knew", "vnew")),
        ("seqlen_knew", "row", ("knew", "vnew")),
    ):
        if launch[extent] == 1:
            ignored |= {f"{tensor}_{dimension}_stride" for tensor in tensors}
    if launch["p_dropout"] == 1:
        ignored |= {"rng_state", "philox_seed", "philox_offset"}
    # 0 and 1 are the same to the launchers
    return {name: value for name, value in launch.items() if name not in ignored} | {
        "num_splits": max(launch["num_splits"], 1)
    }


def assert_launches_what_upstream_launches(stub: Stub, args: ForwardArgs) -> None:
    scale = args.scale or args.head_dim**-0.5
    answer = stub.fwd(args)
    assert answer.status is Status.OK, answer
    ours = stub.launches()
    (theirs,) = stub.upstream_launches(args, scale)
    assert seen_by_kernels(ours[0]) == seen_by_kernels(theirs), describe(args)
    for pointer in ("oaccum_ptr", "softmax_lseaccum_ptr"):
        assert (ours[0][pointer] == 0) == (theirs[pointer] == 0), describe(args)


def describe(args: ForwardArgs) -> dict[str, object]:
    return {name: value for name, *_ in ForwardArgs._fields_ if isinstance(value := getattr(args, name), int | float)}


def strided(rng: random.Random, address: int, rows: int, heads: int, dim: int) -> Tensor:
    """Make a (batch, rows, heads, dim) tensor in one of the orders that people store it in."""
    pad = rng.choice([0, 0, 8, 64])
    if rng.random() < 0.5:
        return Tensor(address, rows * heads * (dim + pad), heads * (dim + pad), dim + pad)
    return Tensor(address, rows * heads * (dim + pad), dim + pad, rows * (dim + pad))


def random_args(rng: random.Random) -> ForwardArgs:
    heads_k = rng.choice([1, 2, 3, 8])
    heads_q = heads_k * rng.choice([1, 1, 2, 7])
    seqlen_q = rng.choice([1, 1, 2, 63, 64, 65, 127, 128, 129, rng.randint(1, 3000)])
    seqlen_k = rng.choice([1, 2, 127, 128, 129, 256, 1000, rng.randint(1, 100_000)])
    batch = rng.choice([1, 1, 2, 5, 64])
    dim = 8 * rng.randint(1, 32)
    flags = Flag(0)
    windows = {}
    for side, flag in (("window_left", Flag.WINDOW_LEFT), ("window_right", Flag.WINDOW_RIGHT)):
        if seqlen_q <= seqlen_k and rng.random() < 0.3:  # otherwise upstream cuts keys off: see below
            flags |= flag
            windows[side] = rng.choice([0, 1, 64, seqlen_k - 1, seqlen_k, seqlen_k + 1])
    if rng.random() < 0.5:
        flags |= Flag.CAUSAL
    alibi = {}
    if rng.random() < 0.2:
        alibi = {"alibi_slopes": 0x60000, "alibi_batch_stride": rng.choice([0, heads_q, heads_q + 3])}
    return forward_args(
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        heads_q=heads_q,
        heads_k=heads_k,
        head_dim=dim,
        dtype=rng.choice([Dtype.FP16, Dtype.BF16]),
        flags=flags,
        device=rng.choice([0, 1, 2]),
        stream=rng.choice([0, 0x1234]),
        scale=rng.choice([0.0, 0.0, 0.1, 1.0]),
        softcap=rng.choice([0.0, 0.0, 30.0, 0.7]),
        q=strided(rng, 0x10000, seqlen_q, heads_q, dim),
        k=strided(rng, 0x20000, seqlen_k, heads_k, dim),
        v=strided(rng, 0x30000, seqlen_k, heads_k, dim),
        o=strided(rng, 0x40000, seqlen_q, heads_q, dim),
        **windows,
        **alibi,
        **WORKSPACE,
    )


@pytest.mark.parametrize("seed", range(8))
def test_every_parameter_is_the_one_that_upstream_passes(full, seed) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        assert_launches_what_upstream_launches(full, random_args(rng))


@pytest.mark.parametrize(
    ("windows", "left", "right"),
    [
        ({"flags": Flag.WINDOW_LEFT, "window_left": 7}, 7, 300),
        ({"flags": Flag.WINDOW_RIGHT, "window_right": 250}, 200, 250),
        ({"flags": Flag.WINDOW_RIGHT, "window_right": 300}, -1, -1),
        ({"flags": Flag.WINDOW_LEFT, "window_left": 200}, -1, -1),
    ],
)
def test_with_more_queries_than_keys_an_unbounded_window_cuts_no_key_off(full, windows, left, right) -> None:
    assert full.fwd(forward_args(seqlen_q=300, seqlen_k=200, **windows, **WORKSPACE)).status is Status.OK
    forward = full.launches()[0]
    assert full.bwd(backward_args(seqlen_q=300, seqlen_k=200, **windows)).status is Status.OK
    (backward,) = full.launches()
    for launch in (forward, backward):
        assert (launch["window_size_left"], launch["window_size_right"]) == (left, right)


@pytest.mark.parametrize("head_dim", range(8, 264, 8))
def test_every_head_dim_runs_in_upstream_s_unit_with_upstream_s_default_scale(full, head_dim) -> None:
    assert_launches_what_upstream_launches(full, forward_args(head_dim=head_dim, **WORKSPACE))


@pytest.mark.parametrize("device", [0, 1, 2])
@pytest.mark.parametrize("head_dim", [32, 64, 128, 256])
def test_the_number_of_splits_is_upstream_s(full, device, head_dim) -> None:
    seen = set()
    for blocks in (1, 2, 3, 5, 8, 13, 21, 33, 55, 80, 105, 107, 130, 171, 172, 173, 205, 211, 212):
        for seqlen_k in (1, 64, 65, 500, 1024, 4095, 16_384, 100_001):
            args = forward_args(
                batch=1, heads_q=blocks, heads_k=blocks, seqlen_k=seqlen_k, seqlen_q=2, head_dim=head_dim,
                device=device, **WORKSPACE,
            )  # fmt: skip
            assert_launches_what_upstream_launches(full, args)
            seen.add(full.fwd_workspace(args)[2])
    assert len(seen) > 8


def test_one_split_is_the_plain_kernel_and_more_are_the_split_kernel(full) -> None:
    decode = {"batch": 1, "seqlen_q": 1, "seqlen_k": 4096, **WORKSPACE}
    for splits, kind in ((1, "fwd"), (2, "splitkv"), (128, "splitkv")):
        assert full.fwd(forward_args(num_splits=splits, **decode)).status is Status.OK
        launch = full.launches()[0]
        assert (launch["kind"], launch["num_splits"]) == (kind, splits)


def test_a_workspace_that_is_missing_never_changes_the_number_of_splits(full) -> None:
    args = forward_args(batch=1, seqlen_q=1, seqlen_k=65_536, num_splits=0)
    assert full.fwd_workspace(args)[2] > 1
    answer = full.fwd(args)
    assert answer.status is Status.WORKSPACE_TOO_SMALL
    assert "num_splits 1 needs less" in answer.text
    assert full.launches() == []


def test_without_split_kv_units_one_split_without_a_workspace_is_chosen(build_stub) -> None:
    stub = build_stub(Selection(fwd=units_of((64,))))
    fields = {"batch": 1, "seqlen_q": 1, "seqlen_k": 100_000, "num_splits": 0}
    answer, count, splits = stub.fwd_workspace(forward_args(q__data=None, lse=None, **fields))
    assert (answer.status, count, splits) == (Status.OK, 0, 1)
    assert stub.fwd(forward_args(**fields)).status is Status.OK


def test_the_workspace_is_exactly_as_large_as_fwd_workspace_says(full) -> None:
    fields = {"batch": 3, "heads_q": 5, "heads_k": 5, "seqlen_q": 7, "seqlen_k": 8192, "head_dim": 72}
    for num_splits in (0, 2, 9):
        answer, count, splits = full.fwd_workspace(forward_args(num_splits=num_splits, **fields))
        assert answer.status is Status.OK
        assert splits == (num_splits or splits)
        args = forward_args(num_splits=num_splits, workspace=0x7000_0000, workspace_bytes=count, **fields)
        assert full.fwd(args).status is Status.OK
        launch, copy = full.launches()

        rows = 3 * 5 * 7
        assert launch["oaccum_ptr"] == 0x7000_0000
        assert launch["softmax_lseaccum_ptr"] == 0x7000_0000 + splits * rows * 96 * 4
        padded_lse = launch["softmax_lseaccum_ptr"] + splits * rows * 4
        assert launch["softmax_lse_ptr"] == padded_lse
        assert 0x7000_0000 + count == padded_lse + 112 * 4  # 105 rows, in blocks of 16
        assert (copy["kind"], copy["from"], copy["to"], copy["bytes"]) == ("copy", padded_lse, 0x50000, rows * 4)
        assert (copy["stream"], copy["direction"]) == (launch["stream"], 3)

        args.workspace_bytes = count - 1
        answer = full.fwd(args)
        assert answer.status is Status.WORKSPACE_TOO_SMALL
        assert f"workspace_bytes is {count - 1} and {splits} splits need {count}" in answer.text
        assert full.launches() == []


@pytest.mark.parametrize(("head_dim", "block"), [(32, 16), (64, 8), (96, 16), (128, 4), (192, 8), (256, 4)])
def test_lse_is_written_in_place_where_it_ends_with_a_block_of_the_combine_kernel(full, head_dim, block) -> None:
    fields = {"batch": 1, "seqlen_q": 1, "seqlen_k": 4096, "num_splits": 4, "head_dim": head_dim, **WORKSPACE}
    for heads, copies in ((block, 0), (block + 1, 1), (2 * block - 1, 1), (2 * block, 0)):
        assert full.fwd(forward_args(heads_q=heads, heads_k=heads, **fields)).status is Status.OK
        launch, *rest = full.launches()
        assert len(rest) == copies
        assert (launch["softmax_lse_ptr"] == 0x50000) == (copies == 0)


def test_splits_that_the_kernels_cannot_index_are_refused(full) -> None:
    too_many = forward_args(batch=64, heads_q=64, heads_k=64, seqlen_q=64, num_splits=128, **WORKSPACE)
    answer = full.fwd(too_many)
    assert answer.status is Status.UNSUPPORTED
    assert "num_splits is 128, which makes 2147483648 partial results" in answer.text
    assert "at most 127 splits" in answer.text
    assert full.fwd_workspace(too_many)[0].status is Status.UNSUPPORTED
    assert full.supports(-1, too_many).status is Status.UNSUPPORTED
    wide = forward_args(batch=2000, heads_q=40, heads_k=40, seqlen_q=1, num_splits=2, **WORKSPACE)
    assert "batch * heads is 80000" in full.fwd(wide).text
    assert full.launches() == []


@pytest.mark.parametrize("fields", [{}, {"heads_k": 1, "seqlen_q": 1}, {"flags": Flag.CAUSAL, "num_splits": 3}])
def test_no_keys_are_our_own_kernel_over_the_caller_s_strides(full, fields) -> None:
    args = forward_args(seqlen_k=0, k__data=None, v__data=None, stream=0x77, **fields)
    assert full.fwd_workspace(args)[1:] == (0, 1)
    assert full.fwd(args).status is Status.OK
    (launch,) = full.launches()
    assert launch == {
        "kind": "empty_keys",
        "current_device": 0,
        "stream": 0x77,
        "o": 0x40000,
        "batch_stride": args.o.batch_stride,
        "row_stride": args.o.row_stride,
        "head_stride": args.o.head_stride,
        "lse": 0x50000,
        "batch": 2,
        "rows": args.seqlen_q,
        "heads": 4,
        "head_dim": 64,
    }


@pytest.mark.parametrize("fields", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_q": 0, "seqlen_k": 0}])
def test_no_queries_launch_nothing(full, fields) -> None:
    assert full.fwd(forward_args(**fields)).status is Status.OK
    assert full.fwd_workspace(forward_args(**fields))[1:] == (0, 1)
    assert full.launches() == []


@pytest.mark.parametrize("fields", [{"q__row_stride": 3, "seqlen_q": 1}, {"o__batch_stride": 0, "batch": 1}])
def test_the_stride_of_a_dimension_of_one_element_is_ignored(full, fields) -> None:
    assert full.fwd(forward_args(**fields)).status is Status.OK


def test_keys_may_be_broadcast(full) -> None:
    assert full.fwd(forward_args(k__batch_stride=0, v__batch_stride=0, k__head_stride=0)).status is Status.OK


@pytest.mark.parametrize("device", DEVICES)
def test_a_gpu_runs_sass_of_its_major_version_up_to_its_minor_version(full, device) -> None:
    major, minor, _ = DEVICES[device]
    answer = full.fwd(forward_args(device=device))
    if major in (8, 9):
        assert answer.status is Status.OK
        assert full.supports(device, forward_args()).status is Status.OK
        assert full.launches()[0]["current_device"] == device
    else:
        assert answer.status is Status.NO_KERNEL_FOR_ARCH
        assert f"device {device} has compute capability {major}.{minor}" in answer.text
        assert "kernels for 80, 90" in answer.text
        assert f"flashdepot get --arch {major}{minor}" in answer.text
        assert full.supports(device, forward_args()) == answer
        assert full.launches() == []


def test_sass_of_a_later_minor_version_does_not_run(build_stub) -> None:
    stub = build_stub(Selection(fwd=units_of((64,)), sass=(86,)))
    assert stub.fwd(forward_args(device=0)).status is Status.NO_KERNEL_FOR_ARCH  # 8.0
    assert stub.fwd(forward_args(device=1)).status is Status.OK  # 8.9


def test_a_device_that_is_not_there_is_an_invalid_argument(full) -> None:
    for ordinal in (len(DEVICES), 64, 1000):
        answer = full.fwd(forward_args(device=ordinal))
        assert answer.status is Status.INVALID
        assert f"device is {ordinal}; this process sees {len(DEVICES)}" in answer.text


@pytest.mark.parametrize("current", [0, 2])
def test_the_thread_s_device_is_the_same_afterwards(full, current) -> None:
    full.c.stub_set_current_device(current)
    assert full.fwd(forward_args(device=1)).status is Status.OK
    assert full.launches()[0]["current_device"] == 1
    assert full.c.stub_current_device() == current
    full.fails("kernel launch", 719)
    assert full.fwd(forward_args(device=1)).status is Status.CUDA
    assert full.c.stub_current_device() == current


def test_an_error_from_before_the_call_is_not_blamed_on_it(full) -> None:
    full.c.stub_set_last_error(700)
    assert full.fwd(forward_args()).status is Status.OK


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("kernel launch", {}),
        ("kernel launch", {"seqlen_k": 0}),
        ("kernel launch", {"num_splits": 2, **WORKSPACE}),
        ("cudaGetDevice", {}),
        ("cudaSetDevice", {}),
        ("cudaMemcpyAsync", {"num_splits": 2, "heads_q": 1, "heads_k": 1, "batch": 1, "seqlen_q": 1, **WORKSPACE}),
    ],
)
def test_an_error_of_cuda_becomes_a_status_and_a_text(full, call, fields) -> None:
    full.fails(call, 719)
    answer = full.fwd(forward_args(device=2, **fields))
    assert answer.status is Status.CUDA
    assert call in answer.text
    assert "cudaErrorOfTheStub (719: text of the stub)" in answer.text
    assert "compute-sanitizer" in answer.text


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (35, "older than 580, which CUDA 13.0 needs: nvidia-smi"),
        (100, "CUDA_VISIBLE_DEVICES"),
        (3, "forked"),
        (209, "flashdepot check"),
    ],
)
def test_an_error_of_cuda_comes_with_what_to_do(build_stub, code, advice) -> None:
    stub = build_stub(Selection(fwd=units_of((32,)), features=FEATURES))  # no device was asked about yet
    stub.fails("cudaDeviceGetAttribute", code)
    answer = stub.fwd(forward_args(head_dim=32))
    assert answer.status is Status.CUDA
    assert advice in answer.text
    assert stub.launches() == []


@pytest.mark.parametrize(
    ("selection", "fields", "fragment"),
    [
        (Selection(fwd=(("bf16", 64, True),)), {}, "head dim 64 bf16 forward is not in this library (it has: bf16 64 (causal only))"),
        (Selection(fwd=(("fp16", 64, False), ("bf16", 96, False), ("bf16", 96, True))), {}, "(it has: fp16 64 (not causal); bf16 96)"),
        (Selection(bwd=units_of((64,))), {}, "(it has: none)"),
        (Selection(fwd=units_of((64,)), splitkv=units_of((32,))), {"num_splits": 2}, "(it has: fp16 32; bf16 32)"),
    ],
)  # fmt: skip
def test_a_library_without_the_unit_says_which_units_it_has(build_stub, selection, fields, fragment) -> None:
    stub = build_stub(selection)
    answer = stub.fwd(forward_args(**fields, **WORKSPACE))
    assert answer.status is Status.UNSUPPORTED
    assert fragment in answer.text
    assert stub.launches() == []


def test_build_info_lists_the_units_of_every_pass(build_stub) -> None:
    names = {"bf16": Dtype.BF16, "fp16": Dtype.FP16}
    units = {(kind, names[dtype], dim, causal) for kind in Pass for dtype, dim, causal in FULL.fwd}
    assert build_stub(FULL).contents().units == units
    only_backward = build_stub(Selection(bwd=units_of((64,)))).contents()
    assert {unit[0] for unit in only_backward.units} == {Pass.BWD}


def test_a_tree_with_head_dim_160_uses_it(build_stub) -> None:
    dims = (*HEAD_DIMS[:4], 160, *HEAD_DIMS[4:])
    stub = build_stub(Selection(fwd=units_of(dims), features=("UNEVEN_K",), head_dims=dims))
    for head_dim, unit in ((136, 160), (160, 160), (168, 192)):
        assert stub.fwd(forward_args(head_dim=head_dim)).status is Status.OK
        (launch,) = stub.launches()
        assert (launch["unit_head_dim"], launch["d_rounded"]) == (unit, unit)


def test_arguments_are_read_once_and_never_written(full) -> None:
    args = forward_args(num_splits=2, flags=Flag.CAUSAL, **WORKSPACE)
    before = bytes(ctypes.string_at(ctypes.byref(args), ctypes.sizeof(args)))
    assert full.fwd(args).status is Status.OK
    assert bytes(ctypes.string_at(ctypes.byref(args), ctypes.sizeof(args))) == before
