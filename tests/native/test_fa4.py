"""What FlashAttention-4's kernels are launched with, by stand-ins for their objects."""

import ast
import ctypes
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashdepot.kernels.fa4.variants import LAYOUTS, MASKS, Variant, backward_variants, forward_variants
from support.fa_abi import Family, Flag, Status, Tensor, backward_args, forward_args
from support.stub_library import DEVICES, FEATURES, HEAD_DIMS, Selection, Stub, parameters, units_of

A100, H100, B200, GB10 = 0, 2, 3, 5

FORWARD = (
    *(Variant("fwd", 128, "bf16", layout, mask) for layout in LAYOUTS for mask in MASKS),
    *(Variant("fwd", 128, "bf16", layout, "causal", long=True) for layout in ("dense", "packed")),
)
BACKWARD = tuple(v for v in backward_variants() if (v.kernel, v.head_dim, v.dtype) == ("bwd", 128, "bf16"))
BOTH = Selection(
    fwd=units_of(HEAD_DIMS), splitkv=units_of(HEAD_DIMS), bwd=units_of(HEAD_DIMS), features=FEATURES,
    sass=(80, 90, 100, 120), families=("fa4", "fa2"), fa4=(*FORWARD, *BACKWARD),
)  # fmt: skip

HALVES = dataclasses.replace(
    BOTH,
    fa4=(
        *(Variant("fwd", dim, "bf16", "dense", "full", half=half) for dim in (128, 192) for half in (False, True)),
        *(Variant("fwd", 128, "bf16", "packed", "full", half=half) for half in (False, True)),
        *(Variant("fwd", 96, "bf16", "dense", "causal", long=long) for long in (False, True)),
        Variant("fwd", 192, "bf16", "dense", "full", narrow_v=True),
        *(Variant("bwd", 64, "bf16", "dense", "full", several_heads=True, half=half) for half in (False, True)),
    ),
)

TOGETHER = dataclasses.replace(
    BOTH,
    fa4=(
        *(
            Variant("fwd", 128, "bf16", layout, "full", half=half)
            for layout in ("dense", "packed")
            for half in (False, True)
        ),
        Variant("fwd", 128, "bf16", "dense", "full", several_heads=True),
        *(Variant("fwd", 256, "bf16", "packed", "full", several_heads=several) for several in (False, True)),
    ),
)

PAGED = {
    "cache_seqlens": 0x1000, "block_table": 0x2000, "block_table_stride": 8, "page_size": 256,
    "k": Tensor(0x20000, 256 * 512, 512, 128), "v": Tensor(0x30000, 256 * 512, 512, 128), "heads_k": 4,
    "workspace": 0x7000_0000, "workspace_bytes": 1 << 40,
}  # fmt: skip
CACHE = {"cache_seqlens": 0x1000, "batch": 2, "workspace": 0x7000_0000, "workspace_bytes": 1 << 40}
PAGED_PACKED = {
    **PAGED, "cache_seqlens": None, "cu_seqlens_q": 0x3000, "cu_seqlens_k": 0x4000, "total_q": 600, "batch": 2,
}  # fmt: skip

FA2_IS_FASTER_UP_TO = 200
"""Keys of a cache, by what fa4_lines makes up."""

WORKER = Path(__file__).parents[2] / "src/flashdepot/kernels/fa4/worker"
ENTRIES = {"fwd": "fwd", "bwd": "bwd", "whole": "bwd", "pre": "pre", "dq": "post", "dkv": "post"}


@pytest.mark.parametrize("kernel", ENTRIES)
def test_the_stand_ins_take_what_the_compiled_functions_take_in_the_same_order(kernel: str) -> None:
    text = (WORKER / "functions.py").read_text()
    functions = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    arguments = {a.arg: ast.unparse(a.annotation or ast.Constant("")) for a in functions[ENTRIES[kernel]].args.args}
    variants = [v for v in (*forward_variants(), *backward_variants()) if v.kernel == kernel]
    assert variants
    for variant in variants:
        taken = [name for name, _ in parameters(variant, walks=variant.blocks > 0)]
        assert taken == [name for name in arguments if name in taken]
        assert all(kind.startswith("Optional") for name, kind in arguments.items() if name not in taken)


@pytest.fixture
def stub(build_stub: Callable[[Selection], Stub]) -> Stub:
    return build_stub(BOTH)


@pytest.fixture
def together(build_stub: Callable[[Selection], Stub]) -> Stub:
    return build_stub(TOGETHER)


@pytest.fixture
def halves(build_stub: Callable[[Selection], Stub]) -> Stub:
    return build_stub(HALVES)


def forward(stub: Stub, **fields: Any) -> dict[str, Any]:
    args = forward_args(**{"device": H100, "head_dim": 128, "seqlen_q": 300, "seqlen_k": 500, **fields})
    answer = stub.fwd(args)
    assert answer.status is Status.OK, answer.text
    return stub.launches()[-1]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "dense_full"),
        ({"flags": Flag.CAUSAL}, "dense_causal"),
        ({"flags": Flag.WINDOW_LEFT, "window_left": 7}, "dense_local"),
        ({"flags": Flag.CAUSAL | Flag.WINDOW_LEFT, "window_left": 7}, "dense_local"),
        ({"flags": Flag.WINDOW_LEFT, "window_left": 10_000}, "dense_full"),
        ({"cache_seqlens": 0x1000}, "used_full"),
        ({"head_dim": 104}, "dense_full"),
    ],
)
def test_a_problem_gets_the_kernel_for_its_mask_and_layout(stub: Stub, fields: dict[str, Any], name: str) -> None:
    launch = forward(stub, **fields)
    assert launch["kind"] == f"fwd_d128_bf16_{name}"
    variant = next(v for v in FORWARD if v.name == launch["kind"])
    assert launch["count"] == len(parameters(variant, walks=variant.blocks > 0))


def test_tensors_are_passed_with_their_own_strides_and_the_callers_head_dim(stub: Stub) -> None:
    args = forward_args(device=H100, head_dim=104, batch=2, heads_q=6, heads_k=2, seqlen_q=300, seqlen_k=500)
    assert stub.fwd(args).status is Status.OK
    (launch,) = stub.launches()
    q, k = args.q, args.k
    assert launch["q"] == [q.data, [2, 300, 6, 104], [q.batch_stride, q.row_stride, q.head_stride]]
    assert launch["k"] == [k.data, [2, 500, 2, 104], [k.batch_stride, k.row_stride, k.head_stride]]
    assert launch["lse"] == [args.lse, [2, 6, 300], [6 * 300, 300]]


@pytest.mark.parametrize(
    ("queries", "keys", "name"),
    [(1024, 40960, "causal"), (11586, 1024, "causal"), (1025, 1025, "causal_long"), (90000, 40960, "causal_long")],
)
def test_long_sequences_have_a_kernel_of_their_own(stub: Stub, queries: int, keys: int, name: str) -> None:
    asked = {"batch": 16, "seqlen_q": queries, "seqlen_k": keys, "flags": Flag.CAUSAL, "family": Family.FA4}
    assert forward(stub, **asked)["kind"] == f"fwd_d128_bf16_dense_{name}"


@pytest.mark.parametrize(
    ("batch", "queries", "name"),
    [(64, 576, ""), (64, 896, ""), (64, 897, "_long"), (64, 961, ""), (64, 1203, ""), (64, 2577, "_long"),
     (2, 2577, ""), (3, 2577, "_long")],
)  # fmt: skip
def test_tiles_of_more_rows_run_where_sequences_fill_them(halves: Stub, batch: int, queries: int, name: str) -> None:
    asked = {"head_dim": 96, "batch": batch, "seqlen_q": queries, "seqlen_k": queries, "flags": Flag.CAUSAL}
    assert forward(halves, **asked, family=Family.FA4)["kind"] == f"fwd_d96_bf16_dense_causal{name}"


@pytest.mark.parametrize(
    ("heads", "batch", "queries", "name"),
    [
        ((32, 4), 8, 130, "_gqa"), ((32, 4), 2, 130, "_half"), ((32, 32), 8, 130, "_half"),
        ((32, 4), 8, 300, "_half"), ((32, 4), 8, 450, ""), ((32, 4), 8, 1, ""), ((8, 1), 1, 900, "_half"),
        ((16, 4), 1, 1050, "_gqa"), ((16, 4), 1, 1060, ""),
    ],
)  # fmt: skip
def test_queries_of_several_heads_that_fill_tiles_badly_share_them(
    together: Stub, heads: tuple[int, int], batch: int, queries: int, name: str
) -> None:
    asked = {"batch": batch, "heads_q": heads[0], "heads_k": heads[1], "seqlen_q": queries, "seqlen_k": 600}
    launch = forward(together, **asked, sink=0x5000, family=Family.FA4)
    assert launch["kind"] == f"fwd_d128_bf16_dense_full{name}"
    assert launch["q"][1] == [batch, queries, heads[0], 128], "the kernel itself takes heads together"


@pytest.mark.parametrize(("heads_q", "name"), [(32, "_gqa"), (4, "")])
def test_packed_sequences_share_them_by_the_mean_of_their_queries(together: Stub, heads_q: int, name: str) -> None:
    packed = {"total_q": 64 * 140, "total_k": 64 * 140, "cu_seqlens_q": 0x1000, "cu_seqlens_k": 0x2000}
    asked = {"head_dim": 256, "batch": 64, "heads_q": heads_q, "heads_k": 4, "seqlen_q": 300, "seqlen_k": 300}
    launch = forward(together, **asked, **packed, family=Family.FA4)
    assert launch["kind"] == f"fwd_d256_bf16_packed_full{name}"


@pytest.mark.parametrize(
    ("head_dim", "queries", "is_half"),
    [
        (192, 64, True), (192, 65, False), (192, 128, False), (192, 129, True), (192, 192, True), (192, 193, False),
        (128, 2, True), (128, 128, True), (128, 448, True), (128, 449, False), (128, 1, False),
    ],
)  # fmt: skip
def test_sequences_that_fill_tiles_badly_get_tiles_of_half_as_many_rows(
    halves: Stub, head_dim: int, queries: int, is_half: bool
) -> None:
    asked = {"head_dim": head_dim, "batch": 64, "heads_q": 32, "seqlen_q": queries, "seqlen_k": 600}
    launch = forward(halves, **asked, sink=0x5000, family=Family.FA4)
    assert launch["kind"] == f"fwd_d{head_dim}_bf16_dense_full{'_half' if is_half else ''}"
    assert launch["blocks"] == (2 if is_half else 1) * DEVICES[H100][2]


def test_a_kernel_for_a_smaller_head_dim_of_v_comes_before_half_tiles(halves: Stub) -> None:
    launch = forward(halves, head_dim=192, head_dim_v=128, seqlen_q=64, seqlen_k=600, sink=0x5000, family=Family.FA4)
    assert launch["kind"] == "fwd_d192v128_bf16_dense_full"


@pytest.mark.parametrize(("total_q", "is_half"), [(8 * 448, True), (8 * 449, False)])
def test_packed_sequences_get_them_by_the_mean_of_their_queries(halves: Stub, total_q: int, is_half: bool) -> None:
    packed = {"total_q": total_q, "total_k": 2800, "cu_seqlens_q": 0x1000, "cu_seqlens_k": 0x2000}
    launch = forward(halves, batch=8, seqlen_q=2000, seqlen_k=2000, family=Family.FA4, **packed)
    assert launch["kind"] == f"fwd_d128_bf16_packed_full{'_half' if is_half else ''}"


@pytest.mark.parametrize(
    ("total", "longest", "name"),
    [
        (4 * 1448, 9000, "causal"), (4 * 1449, 9000, "causal_long"), (3, 9000, "causal"),
        (4 * 2000, 2897, "causal"), (4 * 2000, 2898, "causal_long"),
    ],
)  # fmt: skip
def test_packed_sequences_are_long_by_mean_and_longest(stub: Stub, total: int, longest: int, name: str) -> None:
    packed = {"total_q": 7, "total_k": total, "cu_seqlens_q": 0x1000, "cu_seqlens_k": 0x2000}
    launch = forward(stub, batch=4, seqlen_q=40, seqlen_k=longest, **packed, flags=Flag.CAUSAL, family=Family.FA4)
    assert launch["kind"] == f"fwd_d128_bf16_packed_{name}"
    assert ("blocks" in launch) == (name == "causal")


@pytest.mark.parametrize(
    ("batch", "keys", "strides", "passed"),
    [
        (3, 500, (500 * 512, 512, 128), (500 * 512, 512, 128)),
        (3, 500, (640 * 512, 512, 128), (640 * 512, 512, 128)),
        (3, 500, (4 * 500 * 128, 128, 500 * 128), (4 * 500 * 128, 128, 500 * 128)),
        (1, 500, (0, 512, 128), (500 * 512, 512, 128)),
        (3, 1, (512, 7, 128), (512, 8, 128)),
        (1, 1, (3, 7, 128), (8, 8, 128)),
    ],
)
def test_the_rows_of_a_cache_are_one_list(
    stub: Stub, batch: int, keys: int, strides: tuple[int, ...], passed: tuple[int, ...]
) -> None:
    k = Tensor(0x20000, *strides)
    launch = forward(
        stub, batch=batch, seqlen_k=keys, k=k, v=k, heads_q=4, heads_k=4, cache_seqlens=0x1000, family=Family.FA4
    )
    assert launch["kind"] == "fwd_d128_bf16_used_full"
    assert launch["k"] == launch["v"] == [0x20000, [batch + 1, keys, 4, 128], list(passed)]


def test_a_stride_that_means_nothing_does_not_reach_a_descriptor(stub: Stub) -> None:
    launch = forward(stub, batch=1, q=Tensor(0x100000, 3, 128, -5), heads_q=1, heads_k=1)
    assert launch["q"][2] == [8, 128, 8]


DECODE = {"batch": 1, "seqlen_q": 1, "seqlen_k": 8192, "heads_q": 32, "heads_k": 8}


@pytest.mark.parametrize(
    ("fields", "parts", "in_cluster"),
    [
        ({}, 16, False),
        ({"seqlen_k": 2048}, 8, True),
        ({"seqlen_k": 512}, 8, True),
        ({"batch": 4}, 4, False),
        ({"batch": 8}, 2, True),
        ({"batch": 8, "seqlen_k": 2048}, 2, True),
        ({"batch": 10}, 3, False),
        ({"batch": 8, "seqlen_q": 3}, 2, True),
        ({"batch": 64, "seqlen_q": 2}, 1, False),
        ({"seqlen_k": 200}, 3, True),
        ({"seqlen_k": 60}, 1, False),
        ({"heads_q": 4, "heads_k": 1, "seqlen_k": 131072}, 128, False),
        ({"num_splits": 1}, 1, False),
        ({"num_splits": 5}, 5, False),
        ({"num_splits": 8}, 8, True),
        ({"num_splits": 128}, 128, False),
    ],
)
def test_the_keys_of_few_queries_are_divided_among_the_gpus_sms(
    stub: Stub, fields: dict[str, Any], parts: int, in_cluster: bool
) -> None:
    new = Tensor(0x60000, 1024, 1024, 128)  # which are appended only by kernels that divide the keys of each head
    appended = {"cache_seqlens": 0x1000, "seqlen_new": 1, "k_new": new, "v_new": new}
    args = forward_args(**{"device": H100, "head_dim": 128, "workspace": 0x7000_0000, **DECODE, **appended, **fields})
    answer, needed, splits = stub.fwd_workspace(args)
    rows = args.batch * args.heads_q * args.seqlen_q
    assert (answer.status, splits) == (Status.OK, parts)
    assert needed == (0 if in_cluster or parts == 1 else parts * rows * (128 + 1) * 4)
    if needed:
        args.workspace_bytes = needed - 4
        assert stub.fwd(args).status is Status.WORKSPACE_TOO_SMALL
    args.workspace_bytes = needed
    assert stub.fwd(args).status is Status.OK
    (launch,) = stub.launches()
    assert (launch["kind"], launch["parts"], launch["in_cluster"]) == ("decode", parts, int(in_cluster))
    assert launch["lse_parts"] == parts * rows * 128 * 4


@pytest.mark.parametrize(
    ("fields", "few"),
    [
        ({"batch": 64}, False),
        ({"batch": 16}, False),
        ({"batch": 19}, True),
        ({"batch": 64, "head_dim": 64}, True),
        ({"seqlen_q": 8}, True),
        ({"seqlen_q": 9}, False),
        ({"seqlen_q": 8, "flags": Flag.CAUSAL | Flag.WINDOW_LEFT, "window_left": 7}, True),
        ({"seqlen_q": 4, "head_dim": 136}, True),
        ({"seqlen_q": 5, "head_dim": 136}, False),
        ({**PAGED, "heads_k": 8, "batch": 3}, True),
        ({**PAGED_PACKED, "heads_k": 8, "seqlen_q": 2}, True),
        ({**CACHE, "k": Tensor(0x20000, 100 * 512 + 8, 512, 128)}, True),
        ({**CACHE, "alibi_slopes": 0x60000}, False),
        ({"device": A100}, False),
    ],
)
def test_few_queries_for_each_key_head_have_kernels_of_their_own(stub: Stub, fields: dict[str, Any], few: bool) -> None:
    assert (forward(stub, **{**DECODE, **fields})["kind"] in ("decode", "shares")) == few


SHARED = {
    **DECODE,
    "batch": 7,
    "seqlen_k": 30000,
    "head_dim": 128,
    "workspace": 0x7000_0000,
    "workspace_bytes": 1 << 40,
}


@pytest.mark.parametrize(
    ("fields", "blocks", "own"),
    [({}, 264, 0), ({"head_dim": 64}, 264, 0), ({"seqlen_q": 2, "flags": Flag.CAUSAL}, 264, 0), ({"batch": 3, "heads_q": 8}, 264, 0),
     ({"batch": 16}, 256, 0), ({"batch": 100, "seqlen_k": 900}, 264, 2), ({"batch": 75, "head_dim": 64}, 264, 2)],
)  # fmt: skip
def test_blocks_have_whole_heads_and_even_shares_of_the_keys_of_others(
    stub: Stub, fields: dict[str, Any], blocks: int, own: int
) -> None:
    args = forward_args(**{"device": H100, **SHARED, **fields})
    answer, needed, splits = stub.fwd_workspace(args)
    assert answer.status is Status.OK
    args.workspace_bytes = needed - 4
    assert stub.fwd(args).status is Status.WORKSPACE_TOO_SMALL
    args.workspace_bytes = needed
    assert stub.fwd(args).status is Status.OK
    (launch,) = stub.launches()
    assert launch["kind"] == "shares"
    assert 15 < args.seqlen_k / launch["tiles"] <= 32
    shared = (args.batch * args.heads_k - launch["own"] * launch["blocks"]) * launch["tiles"]
    assert launch["blocks"] * launch["each"] + launch["rest"] == shared
    assert (launch["blocks"], launch["own"]) == (blocks, own)
    assert launch["rest"] < launch["blocks"]
    assert 1 < splits <= 128
    rows = 2 * launch["blocks"] * launch["rows"]
    assert 0 <= launch["flags"] < launch["o_parts"]
    assert launch["o_parts"] % 16 == launch["lse_parts"] % 4 == 0
    assert launch["o_parts"] + rows * args.head_dim * 4 <= launch["lse_parts"]
    assert launch["lse_parts"] + rows * 4 <= needed


LISTS: dict[str, Any] = {"cache_seqlens": 0x1000}
FEW_PAGES = {**LISTS, "block_table": 0x2000, "block_table_stride": 2000, "page_size": 16}


@pytest.mark.parametrize(
    ("fields", "blocks", "own", "parts"),
    [({"batch": 25}, 200, 1, 1), ({"batch": 60}, 240, 2, 1), ({"batch": 50}, 200, 2, 1), ({"batch": 4, "seqlen_k": 384}, 128, 0, 4),
     ({"batch": 20, "seqlen_k": 40}, 160, 1, 1), ({"batch": 25, "head_dim": 128}, 200, 1, 1)],
)  # fmt: skip
def test_of_few_keys_a_block_has_whole_heads_or_a_part_of_one(
    stub: Stub, fields: dict[str, Any], blocks: int, own: int, parts: int
) -> None:
    args = forward_args(**{"device": H100, **SHARED, "head_dim": 64, "seqlen_k": 300, **fields})
    answer, needed, splits = stub.fwd_workspace(args)
    assert (answer.status, splits, needed == 0) == (Status.OK, parts, parts == 1)
    assert stub.fwd(args).status is Status.OK
    (launch,) = stub.launches()
    assert (launch["kind"], launch["blocks"], launch["own"], launch["rest"]) == ("shares", blocks, own, 0)
    assert blocks * (own * launch["tiles"] + launch["each"]) >= args.batch * args.heads_k * launch["tiles"]


USUAL, SMALL, WARP = 0, 1, 2


@pytest.mark.parametrize(
    ("fields", "block", "parts"),
    [
        ({"batch": 290, "seqlen_k": 18}, WARP, 1),
        ({"batch": 290, "seqlen_k": 18, **LISTS}, WARP, 1),
        ({"batch": 290, "seqlen_k": 16, **FEW_PAGES}, WARP, 1),
        ({"batch": 20, "head_dim": 256}, SMALL, 1),
        ({"batch": 60, "head_dim": 128, **LISTS}, SMALL, 1),
        ({"batch": 90, "seqlen_k": 130, **LISTS}, SMALL, 1),
        ({"batch": 40, "seqlen_k": 1023, **LISTS}, SMALL, 1),
        ({"batch": 40, "seqlen_k": 1008, **FEW_PAGES}, SMALL, 1),
        ({"batch": 1, "seqlen_k": 1850}, USUAL, 8),
        ({"batch": 1, "seqlen_k": 1400, "head_dim": 128}, USUAL, 8),
        ({"batch": 2, "head_dim": 256}, USUAL, 4),
        ({"batch": 2, "seqlen_k": 30000, "head_dim": 256, "flags": Flag.WINDOW_LEFT, "window_left": 299}, USUAL, 4),
        ({"batch": 290, "seqlen_k": 18, **LISTS, "leftpad_k": 0x2000}, USUAL, 1),
    ],
)
def test_of_few_keys_more_blocks_are_on_an_sm_where_heads_are_many(
    stub: Stub, fields: dict[str, Any], block: int, parts: int
) -> None:
    launch = forward(stub, **{**SHARED, "head_dim": 64, "seqlen_k": 300, **fields})
    assert (launch["kind"], launch["block"], launch["parts"]) == ("decode", block, parts)


@pytest.mark.parametrize(
    "fields",
    [{"cache_seqlens": 0x1000}, {"cache_seqlens": 0x1000, "block_table": 0x2000, "block_table_stride": 2000, "page_size": 16},
     {"cu_seqlens_q": 0x1000, "cu_seqlens_k": 0x2000, "total_q": 7, "total_k": 90000}],
)  # fmt: skip
def test_sequences_with_lengths_of_their_own_are_divided_on_the_gpu(stub: Stub, fields: dict[str, Any]) -> None:
    launch = forward(stub, **{**SHARED, **fields})
    assert (launch["kind"], launch["tiles"]) == ("shares", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_splits": 3},
        {"heads_q": 128},
        {"head_dim": 128, "v": Tensor(0x30000, 30000 * 1024, 0, 128)},
        {"cache_seqlens": 0x1000, "seqlen_new": 1, "k_new": Tensor(0x60000, 1024, 1024, 128), "v_new": Tensor(0x60000, 1024, 1024, 128)},
        {"cache_seqlens": 0x1000, "leftpad_k": 0x2000},
        {"cache_seqlens": 0x1000, "block_table": 0x2000, "block_table_stride": 4000, "page_size": 24},
    ],
)  # fmt: skip
def test_keys_that_cannot_be_shared_are_divided_into_parts(stub: Stub, fields: dict[str, Any]) -> None:
    assert forward(stub, **{**SHARED, **fields})["kind"] == "decode"


def test_appended_keys_and_their_positions_reach_the_kernel(stub: Stub) -> None:
    new = Tensor(0x60000, 1024, 1024, 128)
    appended = {**CACHE, "batch": 1, "seqlen_new": 1, "k_new": new, "v_new": new}
    launch = forward(stub, **{**DECODE, **appended})
    assert (launch["kind"], launch["seqlen_new"], launch["used_k"]) == ("decode", 1, 0x1000)
    rotary = {"rotary_cos": 0x70000, "rotary_sin": 0x80000, "rotary_dim": 64, "rotary_seqlen": 8192, "seqlen_q": 2}
    assert forward(stub, **{**DECODE, **appended, **rotary})["rotary_moves"] == 0
    assert forward(stub, **{**DECODE, **appended, **rotary, "flags": Flag.CAUSAL})["rotary_moves"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {**CACHE, "k": Tensor(0x20000, 500 * 512 + 8, 512, 128)},
        {**CACHE, "v": Tensor(0x20000, 500 * 512, 0, 128)},
        {"num_splits": 2, "workspace": 0x7000_0000, "workspace_bytes": 1 << 40},
    ],
)
def test_what_its_kernels_for_many_queries_cannot_do_is_fa2s_unless_fa4_is_forced(
    stub: Stub, fields: dict[str, Any]
) -> None:
    assert forward(stub, **fields)["kind"] != "decode"
    assert forward(stub, **fields, family=Family.FA4)["kind"] == "decode"
    why_not = stub.choose(H100, forward_args(**{"device": H100, "head_dim": 128, "seqlen_q": 300, **fields}))[1].why_not
    assert why_not == "fa4: it reads the keys again for every few of so many queries"


@pytest.mark.parametrize(("keys", "pages"), [(512, 2), (500, 2), (513, 3), (40, 1)])
def test_a_sequence_has_pages_for_its_last_keys_too(stub: Stub, keys: int, pages: int) -> None:
    asked = {**PAGED, "seqlen_k": keys, "batch": 3, "heads_q": 4}
    launch = forward(stub, **asked, **({"family": Family.FA4} if keys <= FA2_IS_FASTER_UP_TO else {}))
    assert launch["kind"] == "fwd_d128_bf16_paged_full"
    assert launch["page_table"] == [0x2000, [3, pages], [8]]
    assert launch["k"][1] == [3 * pages + 1, 256, 4, 128]
    assert launch["seqused_k"] == [0x1000, [3], []]


@pytest.mark.parametrize(("fields", "made"), [({}, 0x4000), ({"seqused_k": 0x5000}, None)])
def test_packed_queries_over_pages_have_a_list_of_lengths(stub: Stub, fields: dict[str, Any], made: int | None) -> None:
    asked = {**PAGED_PACKED, **fields, "head_dim": 128, "page_size": 16, "seqlen_k": 500}
    args = forward_args(device=H100, heads_q=8, **asked)
    assert stub.fwd(args).status is Status.OK
    *before, launch = stub.launches()
    assert launch["kind"] == "fwd_d128_bf16_paged_packed_full"
    assert [one["cu_seqlens"] for one in before] == ([made] if made else [])
    assert launch["seqused_k"][0] == (args.workspace if made else 0x5000)
    assert launch["k"][1] == [2 * 32 + 1, 16, 4, 128]
    assert launch["q"][1] == [600, 8, 128]


def test_a_sink_and_the_head_dim_of_v_are_arguments_of_hoppers_kernels(stub: Stub) -> None:
    launch = forward(stub, sink=0xB0000, head_dim_v=64)
    assert launch["sink"] == [0xB0000, [4], []]
    assert (launch["q"][1][-1], launch["v"][1][-1], launch["o"][1][-1]) == (128, 64, 64)
    assert forward(stub)["sink"] == [0, [0], []]
    launch = forward(stub, **{**DECODE, "batch": 64}, sink=0xB0000)
    assert launch["q"][1] == [64, 1, 32, 128], "each query head has a sink of its own"
    answer, need, _ = stub.fwd_workspace(forward_args(device=B200, head_dim=128, head_dim_v=64, family=Family.FA4))
    assert answer.status is Status.OK
    assert need > 0, "kernels that were never run get copies"


def test_an_open_end_of_a_window_reaches_every_key(stub: Stub) -> None:
    launch = forward(stub, flags=Flag.WINDOW_LEFT, window_left=7)
    assert launch["window_left"] == 7
    assert launch["window_right"] >= 500


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({**PAGED, "head_dim": 96}, "(96)"),
        ({"dropout": 0.5, "rng_state": 0x60000}, "dropout"),
        ({"alibi_slopes": 0x60000}, "alibi_slopes"),
        ({"device": A100}, "no kernel for compute capability 8.0"),
        ({"softcap": 5.0}, "is not in this library"),
    ],
)
def test_what_it_cannot_do_goes_to_fa2_and_is_refused_when_forced(
    stub: Stub, fields: dict[str, Any], text: str
) -> None:
    assert "_d" not in forward(stub, **fields)["kind"]
    stub.reset()
    args = forward_args(**{"device": H100, "head_dim": 128, "family": Family.FA4, **fields})
    answer = stub.fwd(args)
    assert answer.status in (Status.UNSUPPORTED, Status.NO_KERNEL_FOR_ARCH)
    assert text in answer.text
    assert stub.launches() == []


def test_few_tiles_with_many_keys_go_to_the_family_that_divides_them(stub: Stub) -> None:
    few = {"batch": 1, "heads_q": 8, "heads_k": 8, "seqlen_q": 100, "seqlen_k": 8192}
    assert forward(stub, **few)["kind"] == "fwd"
    assert forward(stub, **few, family=Family.FA4)["kind"] == "fwd_d128_bf16_dense_full"
    assert forward(stub, **{**few, "batch": 64})["kind"] == "fwd_d128_bf16_dense_full"


@pytest.mark.parametrize(
    ("keys", "fields", "slower"),
    [
        (4096, {"flags": Flag.CAUSAL}, True),
        (4096, {"flags": Flag.CAUSAL, "heads_q": 6, "heads_k": 2}, True),
        (4096, {"flags": Flag.CAUSAL, "heads_q": 8, "heads_k": 2}, False),
        (3000, {"flags": Flag.CAUSAL, "head_dim": 104}, True),
        (6001, {"flags": Flag.CAUSAL}, False),
        (2999, {"flags": Flag.CAUSAL}, False),
        (4096, {}, False),
        (4096, {"flags": Flag.CAUSAL, "family": Family.FA4}, False),
        (200, {}, False),
        (200, {"cache_seqlens": 0x1000}, True),
        (201, {"cache_seqlens": 0x1000}, False),
        (200, {"cu_seqlens_q": 0x3000, "cu_seqlens_k": 0x4000, "total_q": 3200, "total_k": 3200}, False),
    ],
)
def test_what_was_measured_to_be_slower_goes_to_fa2(
    stub: Stub, keys: int, fields: dict[str, Any], slower: bool
) -> None:
    problem = {"batch": 16, "seqlen_q": keys, "seqlen_k": keys, "head_dim": 128, **fields}
    assert (forward(stub, **problem)["kind"] == "fwd") == slower
    answer, choice = stub.choose(H100, forward_args(device=H100, **problem))
    assert answer.status is Status.OK
    why = "fa4: it was measured to be slower at this head dim, mask, length and number of heads"
    assert choice.why_not == (why if slower else "")


COLUMNS = "arch,kind,kernel,head_dim,mask,batch,seqlen,heads_q,heads_k,fa4,fa2"


@pytest.fixture
def with_table(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Stub]:
    """The library as another process would load it, which reads the variable's file once."""

    def load(text: str) -> Stub:
        copy, table = tmp_path / "libcopy.so", tmp_path / "families.csv"
        shutil.copy(stub.path, copy)
        table.write_text(text)
        monkeypatch.setenv("FLASH_ATTENTION_TABLE", str(table))
        return Stub(copy)

    return load


def test_a_table_of_the_users_own_says_which_family_is_faster(with_table: Callable[[str], Stub]) -> None:
    own = with_table(
        f"# 90: a GPU, {'a long note ' * 50}\n{COLUMNS}\n"
        "90,dense,fwd,128,full,1,512,8,8,99.5,100\n"
        "90,dense,fwd,128,full,1,4096,8,8,1034,99.5\n"
        "90,dense,fwd,128,full,1,512,8,1,100,99.75\n"
        "121,dense,fwd,128,full,1,512,8,8,2,1\n"
    )
    # 1449 keys are nearer to 4096 than to 512 by ratio, 2 query heads a key head nearer to 1 than to 8.
    fa2, fa4 = "fwd", "fwd_d128_bf16_dense_full"
    for keys, heads_k, kind in ((100, 8, fa2), (1448, 8, fa2), (1449, 8, fa4), (100, 1, fa4), (100, 4, fa2)):
        launch = forward(own, batch=16, heads_q=8, heads_k=heads_k, seqlen_q=keys, seqlen_k=keys)
        assert launch["kind"] == kind, (keys, heads_k)
    causal = {"batch": 16, "seqlen_q": 4096, "seqlen_k": 4096, "flags": Flag.CAUSAL}
    assert forward(own, **causal)["kind"] == "fwd", "of what the table does not tell, the library's own decides"
    on_another = {"device": GB10, "batch": 2, "seqlen_q": 300, "seqlen_k": 500}
    assert forward(own, **on_another)["kind"] == "sm120f_fwd_d128_bf16_dense_full", "a GPU that the table has measured"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("a,b\n", 1),
        (f"{COLUMNS}\n90,dense,fwd,128,full,1,512,8,8,1\n", 2),
        (f"{COLUMNS}\n90,dense,fwd,128,full,1,512,8,8,1,2\n\n90,dense,both,128,full,1,512,8,8,1,2\n", 4),
        (f"{COLUMNS}\n90,dense,fwd,128,full,1,512,8,0,1,2\n", 2),
    ],
)
def test_an_invalid_table_is_refused_with_its_line(with_table: Callable[[str], Stub], text: str, line: int) -> None:
    own = with_table(text)
    for _ in range(2):
        answer = own.fwd(forward_args(device=H100, head_dim=128))
        assert answer.status is Status.INVALID
        assert f"FLASH_ATTENTION_TABLE names a file whose line {line} is not a measurement" in answer.text
        assert "flashdepot bench --tune" in answer.text
    assert own.fwd(forward_args(device=H100, head_dim=128, family=Family.FA4)).status is Status.OK


def test_a_table_that_cannot_be_opened_is_refused(with_table: Callable[[str], Stub], tmp_path: Path) -> None:
    own = with_table("")
    (tmp_path / "families.csv").unlink()
    answer = own.fwd(forward_args(device=H100, head_dim=128))
    assert (answer.status, "names a file that cannot be opened" in answer.text) == (Status.INVALID, True)


def test_kernels_that_have_run_on_no_gpu_of_a_kind_are_taken_only_when_they_are_forced(stub: Stub) -> None:
    problem = {"device": GB10, "head_dim": 120, "batch": 2, "seqlen_q": 300, "seqlen_k": 500}
    assert forward(stub, **problem)["kind"] == "fwd"
    _, choice = stub.choose(GB10, forward_args(**problem))
    assert choice.why_not == "fa4: its kernels for this GPU have not been measured on one"
    launched = forward(stub, **problem, family=Family.FA4)
    assert (launched["kind"], launched["count"]) == ("sm120f_fwd_d128_bf16_dense_full", 7)
    stub.reset()
    window = {"flags": Flag.WINDOW_LEFT, "window_left": 7, "family": Family.FA4}
    assert forward(stub, **problem, **window)["kind"] == "sm120f_fwd_d128_bf16_dense_local"
    stub.reset()
    cache = {**problem, **PAGED, "head_dim": 128, "page_size": 256, "family": Family.FA4}
    assert stub.fwd(forward_args(**cache)).status is Status.UNSUPPORTED
    assert stub.launches() == []


@pytest.mark.parametrize(
    ("fields", "kernel", "blocks"),
    [
        ({}, "dense_full", 148),
        ({"flags": Flag.CAUSAL}, "dense_causal", None),
        ({"flags": Flag.WINDOW_LEFT, "window_left": 7}, "dense_local", None),
        ({"cache_seqlens": 0x1000}, "used_full", 148),
        (
            {"cu_seqlens_q": 0x3000, "cu_seqlens_k": 0x4000, "total_q": 600, "total_k": 900, "batch": 2},
            "packed_full",
            None,
        ),
    ],
)
def test_datacenter_blackwell_runs_its_own_kernels_when_they_are_forced(
    stub: Stub, fields: dict[str, Any], kernel: str, blocks: int | None
) -> None:
    problem = {"device": B200, "workspace": 0x7000_0000, "workspace_bytes": 1 << 30, **fields}
    assert forward(stub, **problem)["kind"] in ("fwd", "splitkv")
    launched = forward(stub, **problem, family=Family.FA4)
    assert launched["kind"] == f"sm100f_fwd_d128_bf16_{kernel}"
    assert launched.get("blocks") == blocks


@pytest.mark.parametrize("heads_k", [4, 2])
@pytest.mark.parametrize("head_dim", [128, 120])
@pytest.mark.parametrize("flags", [0, Flag.CAUSAL, Flag.WINDOW_LEFT])
def test_a_backward_pass_of_datacenter_blackwell_writes_no_zeros_past_the_head_dim(
    stub: Stub, flags: int, head_dim: int, heads_k: int
) -> None:
    args = backward_args(
        device=B200, head_dim=head_dim, batch=2, seqlen_q=300, seqlen_k=500, heads_q=4, heads_k=heads_k, flags=flags,
        window_left=7 if flags == Flag.WINDOW_LEFT else 0, family=Family.FA4, workspace=0x7000_0000, workspace_bytes=1 << 40,
    )  # fmt: skip
    answer = stub.bwd(args)
    if flags == Flag.WINDOW_LEFT and head_dim == 120 and heads_k == 4:
        assert answer.status is Status.UNSUPPORTED
        assert "no windows and no packed sequences at head dims between those of its kernels" in answer.text
        return
    assert answer.status is Status.OK, answer.text
    kinds = [entry["kind"] for entry in stub.launches()]
    assert next(kind for kind in kinds if kind.startswith("sm100f_")) == "sm100f_pre_d128_bf16_dense_m128"
    assert sum(kind.startswith("sm100f_bwd_d128_bf16_dense_") for kind in kinds) == 1
    assert kinds.count("sm100f_dkv_d128_bf16_dense") == (2 if heads_k == 2 else 0)


@pytest.mark.parametrize(
    ("queries", "keys", "is_half"),
    [(64, 300, True), (128, 200, True), (100, 320, True), (320, 200, True), (448, 200, False), (64, 449, False)],
)
def test_a_backward_pass_over_short_sequences_has_half_tiles_in_all_its_kernels(
    halves: Stub, queries: int, keys: int, is_half: bool
) -> None:
    sizes = {"batch": 2, "seqlen_q": queries, "seqlen_k": keys, "heads_q": 4, "heads_k": 2, "family": Family.FA4}
    args = backward_args(device=H100, head_dim=64, workspace=0x7000_0000, workspace_bytes=1 << 40, **sizes)
    halves.reset()
    assert halves.bwd(args).status is Status.OK
    launches = [entry["kind"] for entry in halves.launches()]
    if is_half:
        expected = ["pre_d64_bf16_dense_m64", "bwd_d64_bf16_dense_full_gqa_half", "dq_d64_bf16_dense_m64", "statistics"]
    else:
        expected = ["pre_d64_bf16_dense_m128", "bwd_d64_bf16_dense_full_gqa", "dq_d64_bf16_dense_m128"]
        expected = ["zero_sums", *expected, *["dkv_d64_bf16_dense"] * 2, "statistics"]
    assert launches == expected


@pytest.mark.parametrize("heads_k", [4, 1])
@pytest.mark.parametrize("flags", [0, Flag.CAUSAL])
def test_the_backward_pass_is_prepared_and_finished_by_kernels_with_its_tiles(
    stub: Stub, flags: int, heads_k: int
) -> None:
    args = backward_args(
        device=H100, head_dim=128, batch=2, seqlen_q=300, seqlen_k=500, heads_q=4, heads_k=heads_k, flags=flags
    )
    needed = ctypes.c_uint64()
    assert stub.c.fa_bwd_workspace(ctypes.byref(args), ctypes.byref(needed)) == 0
    args.workspace, args.workspace_bytes = 0x7000_0000, needed.value
    assert stub.bwd(args).status is Status.OK
    launches = stub.launches()
    tile, rows = 64, 320
    several = heads_k != 4
    expected = [f"pre_d128_bf16_dense_m{tile}"]
    expected += [f"bwd_d128_bf16_dense_{'causal' if flags else 'full'}{'_gqa' if several else ''}"]
    expected += [f"dq_d128_bf16_dense_m{tile}", *(["dkv_d128_bf16_dense"] * 2 if several else []), "statistics"]
    assert [entry["kind"] for entry in launches] == [*(["zero_sums"] if several else []), *expected]
    by_kind = {entry["kind"]: entry for entry in launches}
    assert not several or by_kind["zero_sums"]["bytes"] == 2 * 2 * 512 * 128 * 4
    main = by_kind[expected[1]]
    assert main["dq"][1] == [2, 4, rows * 128]
    assert main["lse"][1] == [2, 4, rows]
    assert main["dk"][1] == ([2, 1, 512 * 128] if several else [2, 500, 4, 128])
    assert by_kind[expected[0]]["dq_sum"] == main["dq"] == by_kind[expected[2]]["gradient_sum"]
    assert by_kind["statistics"]["columns"] == rows
    last = max(main[name][0] for name in ("lse", "softmax_d", "dq"))
    assert last < 0x7000_0000 + needed.value
    args.softmax_d = None
    again = ctypes.c_uint64()
    assert stub.c.fa_bwd_workspace(ctypes.byref(args), ctypes.byref(again)) == 0
    assert stub.bwd(args).status is Status.OK
    without = [entry for entry in launches if entry["kind"] != "statistics"]
    assert (stub.launches(), again.value) == (without, needed.value), "softmax_d is not wanted"


@pytest.mark.parametrize(
    ("batch", "longest", "total", "heads_k", "mask", "sums"),
    [
        (2, 500, 0, 2, "full", True), (33, 500, 0, 2, "full", False), (33, 500, 16500, 2, "full", False),
        (2, 5824, 7365, 2, "full", True), (3, 2769, 4004, 4, "causal", True), (30, 1000, 24000, 4, "causal", False),
    ],
)  # fmt: skip
def test_dk_and_dv_of_several_query_heads_are_summed_in_memory_only_for_too_few_blocks(
    stub: Stub, batch: int, longest: int, total: int, heads_k: int, mask: str, sums: bool
) -> None:
    packed = {"cu_seqlens_q": 0x3000, "cu_seqlens_k": 0x4000, "total_q": total, "total_k": total} if total else {}
    asked = {"batch": batch, "seqlen_q": longest, "seqlen_k": longest, "heads_q": 8, "heads_k": heads_k}
    asked |= {"softmax_d": None, "flags": Flag.CAUSAL if mask == "causal" else 0}
    args = backward_args(device=H100, head_dim=128, workspace=0x7000_0000, workspace_bytes=1 << 40, **asked, **packed)
    assert stub.bwd(args).status is Status.OK
    kinds = [entry["kind"] for entry in stub.launches()]
    layout = "packed" if total else "dense"
    names = ["pre_d128_bf16_{}_m64", f"bwd_d128_bf16_{{}}_{mask}{'_gqa' * sums}", "dq_d128_bf16_{}_m64"]
    names = ["zero_sums", *names, *["dkv_d128_bf16_{}"] * 2] if sums else names
    assert kinds == [name.format(layout) for name in names]


@pytest.mark.parametrize(
    ("fields", "is_whole"),
    [
        ({}, True),
        ({"flags": Flag.CAUSAL}, True),
        ({"cu_seqlens_q": 0x3000, "cu_seqlens_k": 0x4000, "total_q": 100, "total_k": 150}, True),
        ({"heads_q": 8, "heads_k": 4}, True),
        ({"seqlen_k": 129}, False),
        ({"softcap": 3.0}, False),
        ({"flags": Flag.WINDOW_LEFT, "window_left": 7}, False),
        ({"heads_q": 64, "heads_k": 4}, False),
        ({"heads_q": 64, "heads_k": 4, "batch": 33}, True),
    ],
)
def test_one_kernel_has_all_gradients_of_sequences_whose_keys_are_a_tile(
    stub: Stub, fields: dict[str, Any], is_whole: bool
) -> None:
    asked = {"batch": 2, "seqlen_q": 70, "seqlen_k": 128, "heads_q": 4, "heads_k": 4, **fields}
    args = backward_args(device=H100, head_dim=128, workspace=0x7000_0000, workspace_bytes=1 << 40, **asked)
    assert stub.bwd(args).status is Status.OK
    launches = stub.launches()
    assert ([entry["kind"].startswith("whole_") for entry in launches] == [True]) == is_whole
    if is_whole:
        needed = ctypes.c_uint64()
        assert stub.c.fa_bwd_workspace(ctypes.byref(args), ctypes.byref(needed)) == 0
        assert needed.value == 0
        heads, batch = asked["heads_q"], asked["batch"]
        (launch,) = launches
        rows = ([heads, 100], [heads, 100 + 128 * batch]) if args.total_q else ([batch, heads, 70], [batch, heads, 128])
        assert [launch[name][:2] for name in ("lse", "softmax_d")] == [[args.lse, rows[0]], [args.softmax_d, rows[1]]]
        assert 0 in launch["d_lse"][1], "no d_lse is a tensor without heads"


def test_an_object_that_the_driver_refuses_leaves_the_call_to_fa2(stub: Stub) -> None:
    stub.c.stub_refuse_unit(b"fwd_d128_bf16_used_causal")
    causal = {"cache_seqlens": 0x1000, "flags": Flag.CAUSAL, "workspace": 0x7000_0000, "workspace_bytes": 1 << 26}
    assert forward(stub, **causal)["kind"] in ("fwd", "splitkv")
    stub.c.stub_refuse_unit(b"")
    assert forward(stub, **causal)["kind"] in ("fwd", "splitkv"), "the driver is asked once"
    args = forward_args(**{"device": H100, "head_dim": 128, "family": Family.FA4, **causal})
    assert "the driver does not take the code of fwd_d128_bf16_used_causal" in stub.fwd(args).text
