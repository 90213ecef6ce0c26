"""What fa_fwd launches over packed batches, pages and caches, and with dropout, next to upstream."""

import random
from typing import Any

import pytest
from test_forward_launch import WORKSPACE, describe, random_args, seen_by_kernels, strided

from support.fa_abi import Dtype, Flag, ForwardArgs, Status, Tensor, forward_args
from support.stub_library import Stub

CU = {"cu_seqlens_q": 0x100000, "cu_seqlens_k": 0x110000}

DROPOUT = {"rng_state", "p_ptr"}


def launches_of_both(
    stub: Stub, args: ForwardArgs, *, as_cache: bool = False
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return our launch, upstream's, and what follows ours."""
    answer = stub.fwd(args)
    assert answer.status is Status.OK, (answer, describe(args))
    ours, *rest = stub.launches()
    (theirs,) = stub.upstream_launches(args, args.scale or args.head_dim**-0.5, as_cache=as_cache)
    return ours, theirs, rest


def assert_splits_have_room(stub: Stub, ours: dict[str, Any], theirs: dict[str, Any], args: ForwardArgs) -> None:
    """Compare the workspace with what upstream allocates: as large, in order, without overlap."""
    _, count, splits = stub.fwd_workspace(args)
    assert splits == max(theirs["num_splits"], 1), describe(args)
    if ours["num_splits"] <= 1:
        assert ours["oaccum_ptr"] == ours["softmax_lseaccum_ptr"] == 0
        return
    assert ours["oaccum_ptr"] == args.workspace
    assert ours["softmax_lseaccum_ptr"] == args.workspace + stub.upstream_bytes(theirs["oaccum_ptr"])
    end = ours["softmax_lseaccum_ptr"] + stub.upstream_bytes(theirs["softmax_lseaccum_ptr"])
    lse = stub.upstream_bytes(theirs["softmax_lse_ptr"])
    if ours["softmax_lse_ptr"] == args.lse:
        assert count == end - args.workspace
    else:
        assert ours["softmax_lse_ptr"] == end
        assert args.workspace + count >= end + lse


def packed_args(rng: random.Random) -> ForwardArgs:
    args = random_args(rng)
    args.total_q = args.batch if args.seqlen_q == 1 else rng.randint(1, args.batch * args.seqlen_q)
    args.total_k = rng.randint(1, args.batch * args.seqlen_k)
    for name, rows, heads in (
        ("q", args.total_q, args.heads_q),
        ("k", args.total_k, args.heads_k),
        ("v", args.total_k, args.heads_k),
        ("o", args.total_q, args.heads_q),
    ):
        setattr(args, name, strided(rng, getattr(args, name).data, rows, heads, args.head_dim))
    args.cu_seqlens_q, args.cu_seqlens_k = CU.values()
    args.seqused_k = rng.choice([None, 0x120000])
    paged = rng.random() < 0.3
    if paged:
        page(rng, args)
    else:
        args.leftpad_k = rng.choice([None, 0x130000])
    if rng.random() < 0.3 and not paged:
        drop_out(rng, args)
    return args


def page(rng: random.Random, args: ForwardArgs) -> None:
    args.page_size = 256 * rng.randint(1, 4)
    args.block_table = 0x140000
    args.block_table_stride = rng.choice([args.seqlen_k // args.page_size + 1, 4096])
    args.k = strided(rng, args.k.data, args.page_size, args.heads_k, args.head_dim)
    args.v = strided(rng, args.v.data, args.page_size, args.heads_k, args.head_dim)


def drop_out(rng: random.Random, args: ForwardArgs) -> None:
    args.softcap = 0.0
    args.dropout = rng.choice([0.1, 0.17, 0.5, 0.999])
    args.seed, args.offset = rng.randint(0, 2**60), rng.randint(0, 2**60)
    args.rng_state = 0x150000
    square = -(-args.seqlen_q // 128) * -(-args.seqlen_k // 128) * 128**2
    if args.batch * args.heads_q * square < 2**31:
        args.p_debug = rng.choice([None, 0x160000])


@pytest.mark.parametrize("seed", range(8))
def test_packed_parameters_are_those_that_upstream_passes(full, seed) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(500):
        args = packed_args(rng)
        if args.block_table and args.batch * args.heads_q * args.seqlen_q >= 2**31:
            continue
        ours, theirs, rest = launches_of_both(full, args)
        ignored = set()
        padded = bool(args.block_table) and ours["num_splits"] <= 1
        if theirs["seqlenq_ngroups_swapped"]:  # upstream copies q and o there: see below
            ignored |= {f"{tensor}_{name}" for tensor in "qo" for name in ("ptr", "batch_stride", "row_stride", "head_stride")}  # fmt: skip
            if not args.block_table:  # nor do kernels read these: it takes the stride of the rows
                ignored |= {"k_batch_stride", "v_batch_stride"}
        if args.dropout:
            assert_drops_out(ours, theirs, args)
            ignored |= DROPOUT
        if padded:  # see below
            assert not ours["unpadded_lse"]
            assert not ours["seqlenq_ngroups_swapped"]
            assert [launch["kind"] for launch in rest] == ["packed_lse"]
            ignored |= {"unpadded_lse", "seqlenq_ngroups_swapped"}
        else:
            assert rest == []
            assert_splits_have_room(full, ours, theirs, args)
        assert seen_by_kernels(ours, ignored) == seen_by_kernels(theirs, ignored), describe(args)
        seen.add((ours["kind"], padded, ours["num_splits"] > 1, ours["p_dropout"] < 1))
    assert seen == {
        ("fwd", False, False, False),
        ("fwd", False, False, True),
        ("splitkv", False, True, False),
        ("splitkv", True, False, False),
    }


@pytest.mark.parametrize("seed", range(8))
def test_cache_parameters_are_those_that_upstream_passes(full, seed) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(500):
        args = cache_args(rng)
        ours, theirs, _ = launches_of_both(full, args, as_cache=True)
        ignored = {"o_ptr", "o_batch_stride", "o_row_stride", "o_head_stride"}
        assert seen_by_kernels(ours, ignored) == seen_by_kernels(theirs, ignored), describe(args)
        assert ours["o_ptr"] == args.o.data
        assert_splits_have_room(full, ours, theirs, args)
        seen.add((ours["kind"], ours["num_splits"] > 1, ours["knew_ptr"] > 0, ours["block_table"] > 0))
    assert len(seen) == 9, seen


def cache_args(rng: random.Random) -> ForwardArgs:
    args = random_args(rng)
    args.seqlen_k = max(args.seqlen_k, 2)
    few = args.batch * args.heads_q * args.seqlen_q * 256 * 3 < 2**31
    args.num_splits = rng.choice([0, 0, 1, 3]) if few else 0
    paged = rng.random() < 0.4
    if paged:
        page(rng, args)
        args.seqlen_k = -(-args.seqlen_k // args.page_size) * args.page_size
    else:
        args.k = strided(rng, args.k.data, args.seqlen_k, args.heads_k, args.head_dim)
        args.v = strided(rng, args.v.data, args.seqlen_k, args.heads_k, args.head_dim)
        args.cache_batch_idx = rng.choice([None, 0x170000])
    args.cache_seqlens = rng.choice([None, 0x180000, 0x180000])
    if args.cache_seqlens and not paged:
        args.leftpad_k = rng.choice([None, 0x130000])
    group = args.heads_q // args.heads_k
    if args.cache_seqlens and max(args.seqlen_q, group) <= args.seqlen_k and rng.random() < 0.6:
        seen = args.seqlen_q + args.window_left if args.flags & Flag.WINDOW_LEFT else args.seqlen_k
        args.seqlen_new = rng.randint(1, min(args.seqlen_k, seen))
        args.k_new = strided(rng, 0x190000, args.seqlen_new, args.heads_k, args.head_dim)
        args.v_new = strided(rng, 0x1A0000, args.seqlen_new, args.heads_k, args.head_dim)
        if args.head_dim >= 16 and rng.random() < 0.6:
            args.rotary_cos, args.rotary_sin = 0x1B0000, 0x1C0000
            args.rotary_dim = 16 * rng.randint(1, args.head_dim // 16)
            args.rotary_seqlen = args.seqlen_k + rng.choice([0, 7])
            args.flags |= rng.choice([0, Flag.ROTARY_INTERLEAVED])
    if not (paged or args.cache_batch_idx or args.cache_seqlens):
        args.cache_seqlens = 0x180000
    # the same bound as upstream's, which would cut keys off beyond it: see test_forward_launch.py
    if args.seqlen_q > args.seqlen_k:
        args.flags &= ~(Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT)
        args.window_left = args.window_right = 0
    return args


@pytest.mark.parametrize("seed", range(4))
def test_dense_dropout_is_that_of_upstream(full, seed) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        args = random_args(rng)
        drop_out(rng, args)
        ours, theirs, rest = launches_of_both(full, args)
        assert rest == []
        assert ours["kind"] == "fwd"
        assert_drops_out(ours, theirs, args)
        assert full.fwd_workspace(args)[1:] == (0, 1)
        assert seen_by_kernels(ours, DROPOUT) == seen_by_kernels(theirs, DROPOUT), describe(args)


def assert_drops_out(ours: dict[str, Any], theirs: dict[str, Any], args: ForwardArgs) -> None:
    assert (ours["philox_seed"], ours["philox_offset"], ours["philox_captured"]) == (args.seed, args.offset, 0)
    assert (ours["rng_state"], ours["p_ptr"]) == (args.rng_state, args.p_debug or 0)
    assert (theirs["p_ptr"] == 0) == (ours["p_ptr"] == 0)


def test_a_dropout_that_rounds_away_is_none(full) -> None:
    assert full.fwd(forward_args(dropout=1e-30, softcap=5.0)).status is Status.OK
    (launch,) = full.launches()
    assert (launch["p_dropout"], launch["rng_state"]) == (1, 0)
    answer = full.fwd(forward_args(dropout=1e-30, p_debug=0x160000))
    assert answer.status is Status.INVALID


def test_a_seed_on_the_device_is_passed_by_its_address(full) -> None:
    args = forward_args(
        dropout=0.1, seed=1, offset=2, seed_ptr=0x200000, offset_ptr=0x200008, offset_intragraph=12, rng_state=0x150000
    )
    assert full.fwd(args).status is Status.OK
    (launch,) = full.launches()
    assert launch["philox_captured"] == 1
    assert (launch["philox_seed"], launch["philox_offset"]) == (0x200000, 0x200008)
    assert launch["philox_offset_intragraph"] == 12


def test_packed_decoding_swaps_heads_and_rows_by_strides(full) -> None:
    args = forward_args(
        batch=3, seqlen_q=1, heads_q=8, heads_k=2, total_q=3, total_k=50, seqlen_k=40,
        q=Tensor(0x10000, 0, 1024, 96), o=Tensor(0x40000, 0, 2048, 160), **CU,
    )  # fmt: skip
    assert full.fwd(args).status is Status.OK
    (launch,) = full.launches()
    assert (launch["q_ptr"], launch["o_ptr"]) == (0x10000, 0x40000)
    assert [launch[f"q_{name}_stride"] for name in ("batch", "row", "head")] == [1024, 96, 4 * 96]
    assert [launch[f"o_{name}_stride"] for name in ("batch", "row", "head")] == [2048, 160, 4 * 160]
    assert (launch["cu_seqlens_q"], launch["seqlenq_ngroups_swapped"], launch["total_q"]) == (0, 1, 12)
    assert (launch["seqlen_q"], launch["h"], launch["h_k"]) == (4, 2, 2)


def test_packed_single_queries_with_empty_sequences_are_not_swapped(full) -> None:
    args = forward_args(batch=3, seqlen_q=1, heads_q=8, heads_k=2, total_q=2, total_k=50, **CU)
    assert full.fwd(args).status is Status.OK
    (launch,) = full.launches()
    assert (launch["seqlenq_ngroups_swapped"], launch["h"], launch["cu_seqlens_q"]) == (0, 8, CU["cu_seqlens_q"])


@pytest.mark.parametrize(("seqlen_q", "heads_k"), [(1, 2), (1, 8), (33, 2), (33, 8)])
def test_packed_pages_have_their_lse_put_in_order(full, seqlen_q, heads_k) -> None:
    args = forward_args(
        batch=40, seqlen_q=seqlen_q, heads_q=8, heads_k=heads_k, total_q=40 * seqlen_q, seqlen_k=256,
        block_table=0x140000, block_table_stride=1, page_size=256, stream=0x77, **CU,
    )  # fmt: skip
    rows = 40 * 8 * seqlen_q
    assert full.fwd_workspace(args)[1:] == (rows * 4, 1)
    answer = full.fwd(args)
    assert answer.status is Status.WORKSPACE_TOO_SMALL
    assert f"workspace_bytes is 0 and this call needs {rows * 4}; fa_fwd_workspace says so" in answer.text
    args.workspace, args.workspace_bytes = 0x7000_0000, rows * 4
    assert full.fwd(args).status is Status.OK
    launch, copy = full.launches()
    assert launch["kind"] == "splitkv"
    assert launch["softmax_lse_ptr"] == 0x7000_0000
    assert copy == {
        "kind": "packed_lse",
        "current_device": 0,
        "stream": 0x77,
        "padded": 0x7000_0000,
        "packed": 0x50000,
        "cu_seqlens_q": CU["cu_seqlens_q"],
        "batch": 40,
        "heads": 8,
        "rows": seqlen_q,
        "total_q": 40 * seqlen_q,
    }


@pytest.mark.parametrize("fields", [{"seqlen_k": 0, "total_k": 9}, {"total_k": 0}])
def test_packed_without_keys_is_filled_over_all_rows(full, fields) -> None:
    args = forward_args(
        **{"total_q": 300, "total_k": 0, "heads_k": 2, "k__data": None, "v__data": None, **CU, **fields}
    )
    assert full.fwd_workspace(args)[1:] == (0, 1)
    assert full.fwd(args).status is Status.OK
    (launch,) = full.launches()
    assert [launch[name] for name in ("kind", "batch", "rows", "heads")] == ["empty_keys", 1, 300, 4]


def test_packed_without_queries_launches_nothing(full) -> None:
    args = forward_args(total_q=0, total_k=5, q__data=None, o__data=None, lse=None, **CU)
    assert full.fwd(args).status is Status.OK
    assert full.launches() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_batch_idx": 0x170000},
        {"block_table": 0x140000, "page_size": 256},
        {
            "cache_seqlens": 0x180000,
            "seqlen_new": 2,
            "k_new": Tensor(0x190000, 512, 256, 64),
            "v_new": Tensor(0x1A0000, 512, 256, 64),
        },
    ],
)
def test_what_only_split_kernels_do_needs_no_workspace_for_one_split(full, fields) -> None:
    answer, count, splits = full.fwd_workspace(forward_args(num_splits=1, **fields))
    assert (answer.status, count, splits) == (Status.OK, 0, 1)
    assert full.fwd(forward_args(**fields)).status is Status.OK
    (launch,) = full.launches()
    assert (launch["kind"], launch["num_splits"]) == ("splitkv", 1)


def test_row_strides_that_split_kernels_cannot_step_over_are_refused(full) -> None:
    wide = forward_args(k__row_stride=1 << 23, num_splits=2, **WORKSPACE)
    answer = full.fwd(wide)
    assert answer.status is Status.UNSUPPORTED
    assert "k.row_stride is 8388608; the split-KV kernels step over up to 256 rows in 32 bits" in answer.text
    wide.num_splits = 1
    assert full.fwd(wide).status is Status.OK


def test_packed_rows_count_and_not_the_longest_sequence_times_the_batch(full) -> None:
    args = forward_args(batch=1000, seqlen_q=100_000, heads_q=32, heads_k=32, total_q=200_000, total_k=200_000, **CU)
    assert full.fwd(args).status is Status.OK
    paged = {"block_table": 0x140000, "page_size": 256, "total_k": 0}
    args = forward_args(batch=1000, seqlen_q=100_000, heads_q=32, heads_k=32, total_q=200_000, **CU, **paged)
    answer = full.fwd_workspace(args)[0]
    assert answer.status is Status.UNSUPPORTED
    assert "block_table is set and batch * heads_q * seqlen_q is 3200000000" in answer.text


def test_dtype_of_both_kinds_reaches_the_unit(full) -> None:
    for dtype, is_bf16 in ((Dtype.FP16, 0), (Dtype.BF16, 1)):
        assert full.fwd(forward_args(dtype=dtype, total_q=9, total_k=9, **CU)).status is Status.OK
        (launch,) = full.launches()
        assert (launch["dtype_is_bf16"], launch["is_bf16"]) == (is_bf16, is_bf16)
