"""What fa_bwd launches, next to what upstream launches, and what it puts around the kernels."""

import ctypes
import random
from typing import Any

import pytest
from test_forward_launch import strided

from support.fa_abi import BackwardArgs, Dtype, Flag, Status, Tensor, backward_args
from support.stub_library import DEVICES, FEATURES, HEAD_DIMS, Selection, units_of

CU = {"cu_seqlens_q": 0x100000, "cu_seqlens_k": 0x110000}
WORKSPACE = 0x7000_0000

OURS_TO_CHOOSE = {"dsoftmax_sum", "dq_accum_ptr", "dk_ptr", "dv_ptr", "rng_state"}


def random_args(rng: random.Random) -> BackwardArgs:
    heads_k = rng.choice([1, 2, 3, 8])
    heads_q = heads_k * rng.choice([1, 1, 2, 7])
    seqlen_q = rng.choice([1, 2, 63, 64, 65, 127, 128, 129, rng.randint(1, 3000)])
    seqlen_k = rng.choice([1, 2, 127, 128, 129, 256, rng.randint(1, 5000)])
    batch = rng.choice([1, 1, 2, 5, 64])
    dim = 8 * rng.randint(1, 32)
    flags = Flag(rng.choice([0, Flag.CAUSAL])) | Flag(rng.choice([0, Flag.DETERMINISTIC]))
    fields: dict[str, Any] = {}
    for side, flag in (("window_left", Flag.WINDOW_LEFT), ("window_right", Flag.WINDOW_RIGHT)):
        if seqlen_q <= seqlen_k and rng.random() < 0.3:  # otherwise upstream cuts keys off: see below
            flags |= flag
            fields[side] = rng.choice([0, 1, 64, seqlen_k - 1, seqlen_k, seqlen_k + 1])
    if rng.random() < 0.3:
        fields |= {"dropout": rng.choice([0.1, 0.17, 0.5]), "rng_state": 0x150000}
    else:
        fields["softcap"] = rng.choice([0.0, 30.0, 0.7])
    if rng.random() < 0.2:
        fields |= {"alibi_slopes": 0x160000, "alibi_batch_stride": rng.choice([0, heads_q, heads_q + 3])}
    rows_q, rows_k = seqlen_q, seqlen_k
    if rng.random() < 0.5:
        rows_q, rows_k = rng.randint(1, batch * seqlen_q), rng.randint(1, batch * seqlen_k)
        fields |= {"total_q": rows_q, "total_k": rows_k, **CU}
    for i, name in enumerate(("q", "o", "d_o", "dq")):
        fields[name] = strided(rng, 0x10000 * (i + 1), rows_q, heads_q, dim)
    for i, name in enumerate(("k", "v", "dk", "dv")):
        fields[name] = strided(rng, 0x10000 * (i + 5), rows_k, heads_k, dim)
    return backward_args(
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        heads_q=heads_q,
        heads_k=heads_k,
        head_dim=dim,
        dtype=rng.choice([Dtype.FP16, Dtype.BF16]),
        flags=flags,
        device=rng.choice([0, 2]),
        stream=rng.choice([0, 0x1234]),
        scale=rng.choice([0.0, 0.0, 0.1, 1.0]),
        **fields,
    )


def seen_by_kernels(launch: dict[str, Any]) -> dict[str, Any]:
    ignored = OURS_TO_CHOOSE | {"num_splits"}
    for extent, dimension in (("b", "batch"), ("h", "head")):
        if launch[extent] == 1:
            ignored |= {name for name in launch if name.endswith(f"{dimension}_stride") and "alibi" not in name}
    if launch["h_k"] == 1:
        ignored |= {"k_head_stride", "v_head_stride"}
    if launch["cu_seqlens_q"]:  # upstream leaves them uninitialized then
        ignored |= {"do_batch_stride", "dq_batch_stride", "dk_batch_stride", "dv_batch_stride"}
    return {name: value for name, value in launch.items() if name not in ignored}


@pytest.mark.parametrize("seed", range(8))
def test_every_parameter_is_the_one_that_upstream_passes(full, seed) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        args = random_args(rng)
        _, count = full.bwd_workspace(args)
        args.workspace_bytes = count
        answer = full.bwd(args)
        assert answer.status is Status.OK, answer
        launches = full.launches()
        (theirs,) = full.upstream_launches(args, args.scale or args.head_dim**-0.5)
        ours = next(launch for launch in launches if launch["kind"] == "bwd")
        assert seen_by_kernels(ours) == seen_by_kernels(theirs)
        assert ours["dsoftmax_sum"] == args.softmax_d
        assert ours["rng_state"] == (args.rng_state if args.dropout else 0) == theirs["rng_state"]

        dq_accum = full.upstream_bytes(theirs["dq_accum_ptr"])
        fills = [launch for launch in launches if launch["kind"] == "fill"]
        assert ours["dq_accum_ptr"] == WORKSPACE
        assert [(fill["to"], fill["value"], fill["bytes"], fill["stream"]) for fill in fills] == (
            [(WORKSPACE, 0, dq_accum, args.stream or 0)] if args.flags & Flag.DETERMINISTIC else []
        )
        assert not fills or launches[0] == fills[0]
        sums = [launch for launch in launches if launch["kind"] == "group_sum"]
        if args.heads_q == args.heads_k:
            assert sums == []
            assert (ours["dk_ptr"], ours["dv_ptr"]) == (args.dk.data, args.dv.data)
            assert count == dq_accum
        else:
            expanded = full.upstream_bytes(theirs["dk_ptr"])
            assert ours["dk_ptr"] == WORKSPACE + dq_accum
            assert ours["dv_ptr"] == WORKSPACE + dq_accum + expanded
            assert count == dq_accum + 2 * expanded
            assert launches[-2:] == sums
            assert_sums(args, ours, sums)


def assert_sums(args: BackwardArgs, launch: dict[str, Any], sums: list[dict[str, Any]]) -> None:
    is_packed = bool(args.cu_seqlens_q)
    for name, one in zip(("dk", "dv"), sums, strict=True):
        tensor = getattr(args, name)
        assert one == {
            "kind": "group_sum",
            "current_device": args.device,
            "stream": args.stream or 0,
            "expanded": launch[f"{name}_ptr"],
            "group": args.heads_q // args.heads_k,
            "dtype": args.dtype,
            "data": tensor.data,
            "batch_stride": tensor.batch_stride,
            "row_stride": tensor.row_stride,
            "head_stride": tensor.head_stride,
            "batch": 1 if is_packed else args.batch,
            "rows": args.total_k if is_packed else args.seqlen_k,
            "heads": args.heads_k,
            "head_dim": args.head_dim,
        }


@pytest.mark.parametrize("head_dim", range(8, 264, 8))
def test_every_head_dim_runs_in_the_next_unit_up(full, head_dim) -> None:
    assert full.bwd(backward_args(head_dim=head_dim)).status is Status.OK
    (launch,) = full.launches()
    unit = next(dim for dim in HEAD_DIMS if dim >= head_dim)
    assert (launch["unit_head_dim"], launch["d_rounded"], launch["d"]) == (unit, unit, head_dim)


def test_the_workspace_must_be_as_large_as_bwd_workspace_says(full) -> None:
    for fields in (
        {},
        {"heads_k": 1},
        {"flags": Flag.DETERMINISTIC, "heads_k": 2},
        {"total_q": 100, "total_k": 50, **CU},
    ):
        answer, count = full.bwd_workspace(backward_args(**fields))
        assert answer.status is Status.OK
        answer = full.bwd(backward_args(workspace_bytes=count - 1, **fields))
        assert answer.status is Status.WORKSPACE_TOO_SMALL
        assert f"workspace_bytes is {count - 1} and this call needs {count}; fa_bwd_workspace says so" in answer.text
        assert full.launches() == []


@pytest.mark.parametrize("device", [0, 2])
def test_deterministic_parts_come_from_the_number_of_sms(full, device) -> None:
    part = 2 * 128 * 4 * 64 * 4
    args = backward_args(flags=Flag.DETERMINISTIC, device=device)
    assert full.bwd_workspace(args)[1] == part * -(-DEVICES[device][2] // 8)
    assert full.bwd_workspace(backward_args(device=device))[1] == part


def test_no_queries_zero_the_gradients_of_the_keys(full) -> None:
    for fields, batch, rows in (({"seqlen_q": 0}, 2, 128), ({"total_q": 0, "total_k": 77, **CU}, 1, 77)):
        args = backward_args(heads_k=2, stream=0x77, workspace=None, workspace_bytes=0, **fields)
        for name in ("q", "k", "v", "o", "d_o", "dq"):
            getattr(args, name).data = None
        assert full.bwd_workspace(args)[1] == 0
        answer = full.bwd(args)
        assert answer.status is Status.OK, answer
        launches = full.launches()
        assert [launch["kind"] for launch in launches] == ["zeros", "zeros"]
        assert [launch["data"] for launch in launches] == [args.dk.data, args.dv.data]
        assert all((launch["batch"], launch["rows"], launch["heads"]) == (batch, rows, 2) for launch in launches)
        assert all(launch["stream"] == 0x77 for launch in launches)


def test_no_keys_zero_the_gradient_of_the_queries(full) -> None:
    for fields, batch, rows, padded in (
        ({"seqlen_k": 0}, 2, 100, 2 * 128),
        ({"total_k": 0, "total_q": 77, **CU}, 1, 77, 77 + 256),
        ({"seqlen_k": 0, "total_k": 0, "total_q": 77, **CU}, 1, 77, 77 + 256),
    ):
        args = backward_args(**{"seqlen_q": 100, "heads_k": 2, "workspace": None, "workspace_bytes": 0, **fields})
        for name in ("k", "v", "dk", "dv"):
            getattr(args, name).data = None
        assert full.bwd_workspace(args)[1] == 0
        answer = full.bwd(args)
        assert answer.status is Status.OK, answer
        zeros, fill = full.launches()
        assert (zeros["kind"], zeros["to"], zeros["from_dim"]) == ("widths", args.dq.data, 0)
        assert (zeros["cu_seqlens"], zeros["rows"], zeros["heads"]) == (args.cu_seqlens_q or 0, batch * rows, 4)
        assert (fill["kind"], fill["to"], fill["bytes"]) == ("fill", args.softmax_d, padded * 4 * 4)
        args.softmax_d = None
        assert full.bwd(args).status is Status.OK
        assert [launch["kind"] for launch in full.launches()] == ["widths"]


@pytest.mark.parametrize(("fields", "rows"), [({}, 2 * 128), ({**CU, "total_q": 77, "total_k": 90}, 77 + 256)])
def test_a_softmax_d_that_is_not_wanted_is_in_the_workspace(full, fields, rows) -> None:
    args = backward_args(**{"seqlen_q": 100, **fields})
    before = full.bwd_workspace(args)[1]
    args.softmax_d = None
    _, needed = full.bwd_workspace(args)
    assert needed == before + -(-rows * args.heads_q * 4 // 256) * 256
    args.workspace_bytes = needed
    answer = full.bwd(args)
    assert answer.status is Status.OK, answer
    launch = next(launch for launch in full.launches() if launch["kind"] == "bwd")
    assert (launch["dsoftmax_sum"], launch["dq_accum_ptr"]) == (WORKSPACE, WORKSPACE + needed - before)


@pytest.mark.parametrize("fields", [{"batch": 0}, {"seqlen_q": 0, "seqlen_k": 0}, {**CU}, {"batch": 0, **CU}])
def test_nothing_at_all_launches_nothing(full, fields) -> None:
    assert full.bwd(backward_args(**fields)).status is Status.OK
    assert full.launches() == []


def test_dropout_in_head_dim_256_needs_shared_memory(full) -> None:
    fields = {"dropout": 0.1, "rng_state": 0x150000}
    answer = full.bwd(backward_args(head_dim=200, device=1, **fields))
    assert answer.status is Status.UNSUPPORTED
    assert "need 144 KB of shared memory and device 1 (compute capability 8.9) has 99" in answer.text
    assert full.launches() == []
    assert full.bwd(backward_args(head_dim=192, device=1, **fields)).status is Status.OK
    assert full.bwd(backward_args(head_dim=256, device=1)).status is Status.OK
    assert full.bwd(backward_args(head_dim=256, device=0, **fields)).status is Status.OK


def test_a_row_stride_that_the_kernels_cannot_step_over_is_refused(full) -> None:
    answer = full.bwd(backward_args(d_o=Tensor(0x50000, 1 << 40, 1 << 24, 64)))
    assert answer.status is Status.UNSUPPORTED
    assert "d_o.row_stride is 16777216; the backward kernels" in answer.text


@pytest.mark.parametrize("bits", [32, 64])
def test_old_kernels_are_not_given_a_dq_that_they_cannot_index(build_stub, bits) -> None:
    stub = build_stub(Selection(bwd=units_of((128,)), features=FEATURES, upstream="2.8.3", dq_index_bits=bits))
    args = backward_args(batch=8, seqlen_q=1 << 16, seqlen_k=128, heads_q=32, heads_k=32, head_dim=128)
    answer = stub.bwd(args)
    if bits == 64:
        assert answer.status is Status.OK
    else:
        assert answer.status is Status.UNSUPPORTED
        assert "kernels of flash-attention 2.8.3 index it with 32 bits" in answer.text
    args.seqlen_q = 1 << 15
    assert stub.bwd(args).status is Status.OK


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("kernel launch", {}),
        ("kernel launch", {"seqlen_q": 0}),
        ("kernel launch", {"seqlen_k": 0}),
        ("cudaMemsetAsync", {"flags": Flag.DETERMINISTIC}),
        ("cudaMemsetAsync", {"seqlen_k": 0}),
        ("cudaSetDevice", {}),
    ],
)
def test_an_error_of_cuda_becomes_a_status_and_a_text(full, call, fields) -> None:
    full.fails(call, 719)
    answer = full.bwd(backward_args(device=2, **fields))
    assert answer.status is Status.CUDA
    assert call in answer.text
    assert full.c.stub_current_device() == 0


@pytest.mark.parametrize(
    ("selection", "fields", "fragments"),
    [
        (Selection(fwd=units_of((64,))), {}, ["head dim 64 bf16 backward is not in this library (it has: none)", "--passes fwd,bwd --head-dims 64 --dtypes bf16"]),
        (Selection(bwd=(("bf16", 64, True),)), {}, ["(it has: bf16 64 (causal only))"]),
        (Selection(bwd=units_of((64,))), {"dropout": 0.25, "rng_state": 0x150000}, ["dropout is 0.25", "without dropout", "--features dropout"]),
        (Selection(bwd=units_of((64,))), {"softcap": 2.0}, ["softcap is 2", "--passes fwd,bwd"]),
    ],
)  # fmt: skip
def test_a_library_without_the_unit_or_feature_says_what_would_have_it(
    build_stub, selection, fields, fragments
) -> None:
    stub = build_stub(selection)
    args = backward_args(**fields)
    for answer in (stub.bwd(args), stub.bwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert all(fragment in answer.text for fragment in fragments), answer.text
    assert stub.launches() == []


@pytest.mark.parametrize("call", ["cudaGetDevice", "cudaDeviceGetAttribute"])
def test_upstreams_questions_about_the_device_do_not_end_the_program(full, call) -> None:
    failure = ctypes.c_int(-1)
    assert full.c.stub_upstream_multiprocessors(ctypes.byref(failure)) == 108
    assert failure.value == 0
    full.fails(call, 719)
    assert full.c.stub_upstream_multiprocessors(ctypes.byref(failure)) == -1
    assert failure.value == 719
