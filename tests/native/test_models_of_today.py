"""Sinks, gradients of lse, head dims of v, lse of empty rows and combining: what is launched around the kernels."""

import ctypes
from typing import Any

import pytest

from support.fa_abi import PACKED, CombineArgs, Dtype, Flag, Status, Tensor, backward_args, forward_args, packed

SINK, D_SINK, D_LSE = 0xB0000, 0xC0000, 0xD0000
WORKSPACE = 0x7000_0000
NEGATIVE = Flag.EMPTY_LSE_NEG_INF


def kinds(launches: list[dict[str, Any]]) -> list[str]:
    return [launch["kind"] for launch in launches]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["fwd"]),
        ({"sink": SINK}, ["fwd", "finish_rows"]),
        ({"flags": NEGATIVE}, ["fwd", "finish_rows"]),
        ({"sink": SINK, "seqlen_k": 0}, ["empty_keys", "finish_rows"]),
        ({"sink": SINK, "seqlen_q": 0}, []),
        ({"sink": SINK, **PACKED}, ["fwd", "finish_rows"]),
    ],
)
def test_a_sink_and_the_lse_of_empty_rows_come_after_the_kernel(full, fields, expected) -> None:
    args = forward_args(**fields)
    assert full.fwd(args).status is Status.OK
    launches = full.launches()
    assert kinds(launches) == expected
    for launch in launches[1:]:
        assert (launch["o"], launch["lse"], launch["sink"]) == (args.o.data, args.lse, fields.get("sink", 0))
        assert launch["empty_is_negative"] == bool(fields.get("flags"))
        assert launch["rows"] == (9 if "total_q" in fields else 128)


def test_d_lse_is_subtracted_between_what_makes_softmax_d_and_what_reads_it(full) -> None:
    assert full.bwd(backward_args(d_lse=D_LSE, heads_k=2)).status is Status.OK
    launches = full.launches()
    # The stand-in for upstream's launcher checks one launch, as the first of upstream's does.
    assert kinds(launches) == ["bwd", "subtract_d_lse", "group_sum", "group_sum"]
    assert (launches[1]["d_lse"], launches[1]["columns"], launches[1]["step"]) == (D_LSE, 128, 1)
    full.bwd(backward_args())
    assert kinds(full.launches()) == ["bwd"]  # the next call has none


def test_d_sink_is_made_of_what_every_pass_leaves(full) -> None:
    fields = {"sink": SINK, "d_sink": D_SINK}
    for more, expected in (
        ({}, ["bwd", "d_sink"]),
        ({"seqlen_k": 0}, ["widths", "fill", "d_sink"]),
        ({"seqlen_k": 0, "d_lse": D_LSE}, ["widths", "fill", "subtract_d_lse", "d_sink"]),
        ({"seqlen_q": 0}, ["zeros", "zeros", "fill"]),
        ({"batch": 0}, ["fill"]),
    ):
        assert full.bwd(backward_args(**fields, **more)).status is Status.OK
        assert kinds(full.launches()) == expected, more


def test_another_head_dim_of_v_runs_in_copies_in_the_workspace(full) -> None:
    args = forward_args(head_dim=64, head_dim_v=32, workspace=WORKSPACE, workspace_bytes=1 << 40)
    answer, need, _ = full.fwd_workspace(args)
    assert answer.status is Status.OK
    assert need == 2 * (2 * 128 * 4 * 64 * 2)  # v and o
    assert full.fwd(args).status is Status.OK
    widen, launch, narrow = full.launches()
    assert (widen["kind"], widen["from_dim"], widen["to_dim"], widen["to"]) == ("widths", 32, 64, WORKSPACE)
    assert (launch["v_ptr"], launch["o_ptr"]) == (widen["to"], narrow["from"])
    assert (narrow["from_dim"], narrow["to_dim"], narrow["to"]) == (64, 32, args.o.data)
    args.workspace_bytes = need - 1
    answer = full.fwd(args)
    assert answer.status is Status.WORKSPACE_TOO_SMALL
    assert f"this call needs {need}" in answer.text


def test_a_wider_v_takes_kernels_of_its_head_dim_and_the_scale_of_q(full) -> None:
    args = forward_args(head_dim=32, head_dim_v=64, workspace=WORKSPACE, workspace_bytes=1 << 40)
    assert full.fwd(args).status is Status.OK
    q, k, launch = full.launches()
    assert (launch["unit_head_dim"], launch["q_ptr"], launch["k_ptr"]) == (64, q["to"], k["to"])
    assert launch["scale_softmax"] == pytest.approx(32**-0.5)


PAGES = {
    "block_table": 0x60000,
    "block_table_stride": 8,
    "k__batch_stride": 16 * 4 * 64,
    "v__batch_stride": 16 * 4 * 64,
}


@pytest.mark.parametrize(
    ("fields", "page_size", "dim_v"),
    [
        ({**PAGES, "page_size": 16, "cache_seqlens": 0x50000}, 16, 64),
        ({**PAGES, "page_size": 16}, 16, 64),
        ({"head_dim_v": 32, "cache_seqlens": 0x50000}, 0, 32),
        ({"head_dim_v": 32, "cache_seqlens": 0x50000, "cache_batch_idx": 0x60000}, 0, 32),
        ({**PAGES, "page_size": 256, "head_dim_v": 32, "cache_seqlens": 0x50000}, 256, 32),
    ],
)
def test_keys_that_kernels_cannot_read_where_they_lie_are_copied_together(full, fields, page_size, dim_v) -> None:
    args = forward_args(workspace=WORKSPACE, workspace_bytes=1 << 40, **fields)
    answer, need, _ = full.fwd_workspace(args)
    assert answer.status is Status.OK, answer.text
    assert full.fwd(args).status is Status.OK
    k, v, launch, *narrow = full.launches()
    assert (k["kind"], v["kind"], launch["kind"]) == ("gathering", "gathering", "fwd")
    assert (k["from"], k["page_size"], k["lengths"]) == (args.k.data, page_size, fields.get("cache_seqlens", 0))
    assert (k["batch_idx"], k["block_table"]) == (fields.get("cache_batch_idx", 0), fields.get("block_table", 0))
    assert (v["from_dim"], v["to_dim"]) == (dim_v, 64)
    assert (launch["k_ptr"], launch["v_ptr"], launch["block_table"]) == (k["to"], v["to"], 0)
    assert [one["to"] for one in narrow] == ([args.o.data] if dim_v != 64 else [])
    args.workspace_bytes = need - 1
    assert full.fwd(args).status is Status.WORKSPACE_TOO_SMALL


def test_packed_queries_over_small_pages_get_packed_keys(full) -> None:
    fields = {**PACKED, **PAGES, "page_size": 16, "total_k": 0}
    args = forward_args(workspace=WORKSPACE, workspace_bytes=1 << 40, **fields)
    assert full.fwd(args).status is Status.OK
    starts, lengths, k, _, launch = full.launches()
    assert kinds([starts, lengths, k, launch]) == ["starts", "lengths", "gathering", "fwd"]
    assert (starts["rows"], lengths["cu_seqlens"]) == (args.seqlen_k, args.cu_seqlens_k)
    assert (launch["cu_seqlens_k"], launch["seqused_k"]) == (starts["starts"], lengths["lengths"])
    assert k["lengths"] == lengths["lengths"]


def test_pages_of_a_whole_number_of_tiles_are_read_where_they_lie(full) -> None:
    for head_dim, page_size in ((64, 256), (96, 128), (192, 64)):
        args = forward_args(**PAGES, page_size=page_size, head_dim=head_dim, cache_seqlens=0x50000)
        assert full.fwd(args).status is Status.OK
        assert kinds(full.launches()) == ["splitkv"]


def test_keys_are_not_appended_to_what_is_copied(full) -> None:
    args = forward_args(**PAGES, page_size=16, cache_seqlens=0x50000, seqlen_new=1)
    args.k_new, args.v_new = packed(0x10000, 1, 4, 64), packed(0x20000, 1, 4, 64)
    answer = full.fwd(args)
    assert answer.status is Status.UNSUPPORTED
    assert "write the new keys to the cache first" in answer.text


def test_new_keys_that_no_query_sees_are_not_lost(full) -> None:
    given = {"cache_seqlens": 0x50000, "seqlen_q": 2, "flags": Flag.WINDOW_LEFT, "window_left": 3}
    for new, status in ((5, Status.OK), (6, Status.UNSUPPORTED)):
        args = forward_args(
            **given, seqlen_new=new, k_new=packed(0x10000, new, 4, 64), v_new=packed(0x20000, new, 4, 64)
        )
        answer = full.fwd(args)
        assert answer.status is status
    assert "see as few as 5 of those keys" in answer.text
    args.flags = args.window_left = 0
    assert full.fwd(args).status is Status.OK


def test_backward_copies_every_narrow_tensor_and_the_lse_that_kernels_know(full) -> None:
    args = backward_args(head_dim=64, head_dim_v=32, flags=NEGATIVE)
    assert full.bwd(args).status is Status.OK
    launches = full.launches()
    assert kinds(launches) == ["positive_infinity", "widths", "widths", "widths", "bwd", "widths"]
    assert launches[4]["softmax_lse_ptr"] == launches[0]["to"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"head_dim_v": 33}, "head_dim_v is 33"),
        ({"sink": SINK, "alibi_slopes": 0x1000, "flags": Flag.CAUSAL}, "sink, alibi_slopes and FA_FLAG_CAUSAL"),
        ({"qv__data": 0x1000}, "qv.data is set"),
        ({"dtype": Dtype.E4M3}, "dtype is 3 (FA_DTYPE_E4M3)"),
    ],
)
def test_what_no_family_serves_is_refused_by_name(full, fields, text) -> None:
    for answer in (full.fwd(forward_args(**fields)), full.supports(-1, forward_args(**fields))):
        assert answer.status in {Status.UNSUPPORTED, Status.INVALID}
        assert text in answer.text


def test_d_sink_needs_the_sink(full) -> None:
    assert "d_sink is set and sink is NULL" in full.bwd_supports(-1, backward_args(d_sink=D_SINK)).text


def test_preload_loads_what_a_call_would_launch_and_launches_nothing(full) -> None:
    forward = forward_args(sink=SINK, head_dim_v=32, workspace=0, workspace_bytes=0)
    backward = backward_args(d_lse=D_LSE)
    assert full.preload(forward, backward).status is Status.OK
    launches = full.launches()
    assert kinds(launches) == ["widths", "fwd", "widths", "finish_rows", "bwd", "subtract_d_lse"]
    assert all(launch["only_loads"] for launch in launches)
    assert full.preload(None, None).status is Status.OK
    assert "batch is -1" in full.preload(forward_args(batch=-1)).text


def test_queries_look_at_the_device(full) -> None:
    for answer in (
        full.fwd_workspace(forward_args(device=99))[0],
        full.bwd_workspace(backward_args(device=99))[0],
        full.bwd_supports(99, backward_args()),
        full.preload(forward_args(device=99)),
    ):
        assert answer.status is Status.INVALID
        assert "device is 99; this process sees 6" in answer.text


def combine_args(**fields: Any) -> CombineArgs:
    args = CombineArgs(size=ctypes.sizeof(CombineArgs), dtype=Dtype.BF16, parts=3, batch=2, seqlen_q=16, heads_q=4)
    args.head_dim_v = 64
    args.o_parts, args.o, args.o_parts_stride = packed(0x10000, 16, 4, 64), packed(0x20000, 16, 4, 64), 1 << 20
    args.lse_parts, args.lse_parts_stride, args.lse = Tensor(0x30004, 64, 4, 1), 128, 0x40000
    for name, value in fields.items():
        setattr(args, name, value)
    return args


def test_combine_takes_the_dtype_of_o_for_that_of_the_parts(full) -> None:
    assert full.combine(combine_args(flags=NEGATIVE)).status is Status.OK
    (launch,) = full.launches()
    assert (launch["parts"], launch["parts_dtype"], launch["dtype"]) == (3, Dtype.BF16, Dtype.BF16)
    assert launch["empty_is_negative"] == 1
    assert full.combine(combine_args(batch=0)).status is Status.OK
    assert full.launches() == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"parts": 0}, "parts is 0; allowed: 1 to 256"),
        ({"parts_dtype": Dtype.E4M3}, "parts_dtype is 3"),
        ({"head_dim_v": 520}, "head_dim_v is 520"),
        ({"o_parts_stride": 7}, "o_parts_stride is 7"),
        ({"device": 99}, "device is 99"),
        ({"flags": Flag.CAUSAL}, "flags is 0x1"),
    ],
)
def test_combine_names_what_is_wrong(full, fields, text) -> None:
    answer = full.combine(combine_args(**fields))
    assert answer.status is Status.INVALID
    assert text in answer.text
