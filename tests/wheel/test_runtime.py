"""What flash_attn_2_cuda tells the C library, and what it returns."""

import importlib
import math
import re
import shutil
import sys

import fake_torch
import pytest
from calls import HK, LENGTHS, SK, SQ, B, D, H, backward, dense, kvcache, varlen, varlen_backward
from fake_torch import CPU, Device, Generator, StateGenerator, Tensor, bfloat16, float16, float32, int32, int64

from support.fa_abi import Dtype, Flag
from support.fa_abi import Tensor as Address

CALLS = {
    "fwd": dense,
    "varlen_fwd": varlen,
    "fwd_kvcache": kvcache,
    "bwd": backward,
    "varlen_bwd": varlen_backward,
}


def call(runtime, function, **changed):
    arguments = CALLS[function](**changed)
    return getattr(runtime.module, function)(*arguments.values()), arguments


def at(tensor, *, packed=False):
    """Return the fa_tensor of a tensor."""
    *strides, last = tensor.stride()
    assert last == 1
    return (tensor.data_ptr(), 0, *strides) if packed else (tensor.data_ptr(), *strides)


def of(address: Address):
    return address.data, address.batch_stride, address.row_stride, address.head_stride


def sizes(args):
    return args.batch, args.seqlen_q, args.seqlen_k, args.heads_q, args.heads_k, args.head_dim


def all_zero(args, *names):
    return not any(getattr(args, name) for name in names)


DROPOUT_FIELDS = ("seed", "offset", "seed_ptr", "offset_ptr", "offset_intragraph", "p_debug")
VARLEN_FIELDS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_k", "leftpad_k")
PAGE_FIELDS = ("block_table", "block_table_stride", "page_size")
CACHE_FIELDS = ("seqlen_new", "cache_seqlens", "cache_batch_idx", "rotary_cos", "rotary_sin", "rotary_dim")


@pytest.mark.parametrize("function", CALLS)
def test_the_arguments_are_upstreams_in_their_order(runtime, function, upstream_tree) -> None:
    source = (upstream_tree / "csrc/flash_attn/flash_api.cpp").read_text()
    parameters = re.search(rf"^mha_{function}\((.*?)\) \{{", source, re.DOTALL | re.MULTILINE)[1]
    names = re.findall(r"(\w+)\s*(?:,|$)", re.sub(r"//.*|/\*.*?\*/", "", parameters).strip())
    assert [name.rstrip("_") for name in names] == list(CALLS[function]())


def test_fwd_fills_the_struct_and_returns_what_upstream_returns(runtime) -> None:
    q = Tensor((B, SQ, H, D), bfloat16, strides=(SQ * 3 * H * D, 3 * H * D, D, 1))
    kv = {name: Tensor((B, SK, HK, D), bfloat16) for name in "kv"}
    (out, lse, p, rng_state), given = call(runtime, "fwd", q=q, **kv)
    args = runtime.forward_args()
    assert (args.device, args.dtype, args.stream) == (0, Dtype.BF16, 0x5000)
    assert sizes(args) == (B, SQ, SK, H, HK, D)
    assert (args.flags, args.scale, args.softcap, args.dropout, args.num_splits) == (0, 0.125, 0.0, 0.0, 0)
    assert [of(getattr(args, n)) for n in "qkvo"] == [at(t) for t in (q, given["k"], given["v"], out)]
    assert args.lse == lse.data_ptr()
    assert all_zero(args, "total_q", "total_k", "alibi_slopes", "workspace", "workspace_bytes")
    assert all_zero(args, *VARLEN_FIELDS, *PAGE_FIELDS, *CACHE_FIELDS, *DROPOUT_FIELDS)
    assert (out.shape, out.dtype, out.base) == (q.shape, bfloat16, ("like", q))
    assert (lse.shape, lse.dtype) == ((B, H, SQ), float32)
    assert (p.shape, p.dtype) == ((0,), bfloat16)
    assert (rng_state.shape, rng_state.dtype, rng_state.is_cuda) == ((2,), int64, True)


def test_fwd_writes_into_the_output_that_it_is_given(runtime) -> None:
    given = Tensor((B, SQ, H, D))
    (out, *_), _ = call(runtime, "fwd", out=given)
    assert out is given
    assert of(runtime.forward_args().o) == at(given)


@pytest.mark.parametrize(
    ("causal", "left", "right", "flags", "window"),
    [
        (False, -1, -1, Flag(0), (0, 0)),
        (True, -1, -1, Flag.CAUSAL, (0, 0)),
        (True, 7, 9, Flag.CAUSAL | Flag.WINDOW_LEFT, (7, 0)),
        (False, -1, 0, Flag.WINDOW_RIGHT, (0, 0)),
        (False, 5, 6, Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT, (5, 6)),
        (False, 0, -1, Flag.WINDOW_LEFT, (0, 0)),
        (False, 10_000, 10_000, Flag(0), (0, 0)),
        (False, -7, 3, Flag.WINDOW_RIGHT, (0, 3)),
    ],
)
@pytest.mark.parametrize("function", CALLS)
def test_windows_become_flags(runtime, function, causal, left, right, flags, window) -> None:
    call(runtime, function, is_causal=causal, window_size_left=left, window_size_right=right)
    args = runtime.backward_args() if function.endswith("bwd") else runtime.forward_args()
    assert (Flag(args.flags), (args.window_left, args.window_right)) == (flags, window)


@pytest.mark.parametrize("function", CALLS)
def test_slopes_softcap_and_the_scale_arrive(runtime, function) -> None:
    slopes = Tensor((B, H), float32, strides=(H + 2, 1))
    call(runtime, function, alibi_slopes=slopes, softcap=30.0, softmax_scale=0.5)
    args = runtime.backward_args() if function.endswith("bwd") else runtime.forward_args()
    assert (args.alibi_slopes, args.alibi_batch_stride) == (slopes.data_ptr(), H + 2)
    assert (args.softcap, args.scale) == (30.0, 0.5)


def test_slopes_by_head_serve_every_sequence(runtime) -> None:
    call(runtime, "fwd", alibi_slopes=Tensor((H,), float32), softcap=-1.0)
    args = runtime.forward_args()
    assert args.alibi_slopes
    assert (args.alibi_batch_stride, args.softcap) == (0, 0.0)


@pytest.mark.parametrize("function", CALLS)
def test_a_scale_of_zero_is_the_smallest_that_is_not_the_default(runtime, function) -> None:
    call(runtime, function, softmax_scale=0.0)
    args = runtime.backward_args() if function.endswith("bwd") else runtime.forward_args()
    assert 0 < args.scale < 1e-37


@pytest.mark.parametrize("function", CALLS)
def test_a_negative_scale_turns_the_queries_round(runtime, function) -> None:
    gradient = {"dq": Tensor(CALLS[function]()["q"].shape)} if function.endswith("bwd") else {}
    _, given = call(runtime, function, softmax_scale=-0.25, **gradient)
    args = runtime.backward_args() if function.endswith("bwd") else runtime.forward_args()
    assert args.scale == 0.25
    assert args.q.data != given["q"].data_ptr()
    assert given["q"].done == []
    if gradient:
        assert gradient["dq"].done == ["neg"], "the gradient of -q is that of q with its sign changed"


def test_another_device_is_named_with_its_own_stream(runtime) -> None:
    tensors = {name: Tensor(t.shape, device=Device("cuda", 1)) for name, t in dense().items() if name in "qkv"}
    call(runtime, "fwd", **tensors)
    args = runtime.forward_args()
    assert (args.device, args.stream) == (1, 0x5001)


@pytest.mark.parametrize("function", CALLS)
def test_the_workspace_that_the_library_wants_is_allocated_and_passed(runtime, function) -> None:
    runtime.answers(workspace=4096)
    call(runtime, function)
    args = runtime.backward_args() if function.endswith("bwd") else runtime.forward_args()
    (workspace,) = runtime.torch.workspaces
    assert (args.workspace, args.workspace_bytes) == (workspace.data_ptr(), 4096)
    assert workspace.is_cuda
    assert args.lse, "the fields around the workspace are as they were"
    assert sizes(args)[0] == B


def test_dropout_takes_its_numbers_from_the_default_generator_and_advances_it(runtime) -> None:
    generator = runtime.torch.cuda.default_generators[0]
    generator.offset_ = 40
    (_, _, p, rng_state), _ = call(runtime, "fwd", p_dropout=0.25, return_softmax=True)
    args = runtime.forward_args()
    assert (args.dropout, args.seed, args.offset) == (0.25, 1234, 40)
    assert generator.offset_ == 40 + B * H * 32
    assert all_zero(args, "seed_ptr", "offset_ptr", "offset_intragraph")
    assert (args.rng_state, args.p_debug) == (rng_state.data_ptr(), p.data_ptr())
    assert p.shape == (B, H, 384, 256)


def test_dropout_without_probabilities_leaves_their_field_empty(runtime) -> None:
    (_, _, p, _), _ = call(runtime, "varlen_fwd", p_dropout=0.25)
    assert not runtime.forward_args().p_debug
    assert p.shape == (0,)


@pytest.mark.parametrize("kind", [Generator, StateGenerator])
@pytest.mark.parametrize("function", ["fwd", "varlen_fwd"])
def test_a_generator_that_is_given_is_the_one_that_advances(runtime, function, kind) -> None:
    generator = kind(seed=2**63 + 5, offset=8)
    call(runtime, function, p_dropout=0.1, gen=generator)
    args = runtime.forward_args()
    assert (args.seed, args.offset, generator.offset_) == (2**63 + 5, 8, 8 + B * H * 32)
    assert runtime.torch.cuda.default_generators[0].offset_ == 0


def test_no_dropout_leaves_the_generator_untouched(runtime) -> None:
    call(runtime, "fwd")
    call(runtime, "varlen_fwd")
    assert runtime.torch.cuda.default_generators[0].offset_ == 0


def test_in_a_graph_seed_and_offset_come_by_pointer(runtime) -> None:
    generator = StateGenerator(offset=64)
    generator.captured = True
    call(runtime, "fwd", p_dropout=0.1, gen=generator)
    args = runtime.forward_args()
    assert args.seed_ptr
    assert args.offset_ptr
    assert (args.seed, args.offset, args.offset_intragraph) == (0, 0, 64)


def test_dropout_in_a_graph_of_an_older_torch_says_what_it_needs(runtime) -> None:
    runtime.torch.cuda.capturing = {0}
    with pytest.raises(RuntimeError, match=r"torch\.Generator\.philox_state, which torch 2\.9\.1 does not have"):
        call(runtime, "fwd", p_dropout=0.1)
    assert runtime.calls == 0


def test_varlen_fwd_fills_the_struct(runtime) -> None:
    (out, lse, p, _), given = call(runtime, "varlen_fwd", leftpad_k=Tensor((B,), int32), seqused_k=Tensor((B,), int32))
    args = runtime.forward_args()
    assert sizes(args) == (B, 150, 90, H, HK, D)
    assert (args.total_q, args.total_k) == LENGTHS
    assert [of(getattr(args, n)) for n in "qkvo"] == [
        at(t, packed=True) for t in (given["q"], given["k"], given["v"], out)
    ]
    for name in VARLEN_FIELDS:
        assert getattr(args, name) == given[name].data_ptr()
    assert all_zero(args, *PAGE_FIELDS, *CACHE_FIELDS, *DROPOUT_FIELDS)
    assert (lse.shape, p.shape) == ((H, LENGTHS[0]), (0,))


def test_varlen_fwd_over_pages(runtime) -> None:
    table = Tensor((B, 3), int32, strides=(8, 1))
    pages = {name: Tensor((5, 256, HK, D)) for name in "kv"}
    call(runtime, "varlen_fwd", block_table=table, **pages)
    args = runtime.forward_args()
    assert (args.block_table, args.block_table_stride, args.page_size) == (table.data_ptr(), 8, 256)
    assert (args.total_q, args.total_k, args.seqlen_k) == (LENGTHS[0], 0, 90)
    assert of(args.k) == at(pages["k"])


def test_zero_tensors_fills_what_no_sequence_covers(runtime) -> None:
    (out, lse, _, _), _ = call(runtime, "varlen_fwd", zero_tensors=True)
    assert (out.done, lse.done) == (["zero"], [("fill", -math.inf)])


def test_fwd_kvcache_over_a_dense_cache(runtime) -> None:
    lengths = Tensor((B,), int32)
    (out, lse), given = call(runtime, "fwd_kvcache", seqlens_k=lengths, num_splits=3, is_causal=True)
    args = runtime.forward_args()
    assert sizes(args) == (B, 1, 512, H, HK, D)
    assert [of(getattr(args, n)) for n in "qkvo"] == [
        at(t) for t in (given["q"], given["kcache"], given["vcache"], out)
    ]
    assert (args.cache_seqlens, args.num_splits, Flag(args.flags)) == (lengths.data_ptr(), 3, Flag.CAUSAL)
    assert all_zero(args, "seqlen_new", "cache_batch_idx", "rotary_cos", "rotary_dim", *PAGE_FIELDS, *VARLEN_FIELDS)
    assert lse.shape == (B, H, 1)


def test_fwd_kvcache_appends_and_rotates(runtime) -> None:
    new = {name: Tensor((B, 4, HK, D)) for name in "kv"}
    vectors = {name: Tensor((B,), int32) for name in ("seqlens_k", "cache_batch_idx", "leftpad_k")}
    tables = {name: Tensor((600, 16)) for name in ("rotary_cos", "rotary_sin")}
    cache = {name: Tensor((7, 512, HK, D)) for name in ("kcache", "vcache")}
    call(runtime, "fwd_kvcache", is_rotary_interleaved=True, **new, **vectors, **tables, **cache)
    args = runtime.forward_args()
    assert (args.seqlen_new, of(args.k_new), of(args.v_new)) == (4, at(new["k"]), at(new["v"]))
    assert args.cache_seqlens == vectors["seqlens_k"].data_ptr()
    assert args.cache_batch_idx == vectors["cache_batch_idx"].data_ptr()
    assert args.leftpad_k == vectors["leftpad_k"].data_ptr()
    assert (args.rotary_cos, args.rotary_sin) == tuple(t.data_ptr() for t in tables.values())
    assert (args.rotary_dim, args.rotary_seqlen, Flag(args.flags)) == (32, 600, Flag.ROTARY_INTERLEAVED)


def test_left_padding_of_a_full_cache_says_that_it_is_full(runtime) -> None:
    call(runtime, "fwd_kvcache", leftpad_k=Tensor((B,), int32))
    args = runtime.forward_args()
    assert args.leftpad_k
    assert args.cache_seqlens


def test_the_layout_of_rotary_pairs_means_nothing_without_rotary(runtime) -> None:
    call(runtime, "fwd_kvcache", is_rotary_interleaved=True)
    assert runtime.forward_args().flags == 0


def test_fwd_kvcache_over_pages(runtime) -> None:
    table = Tensor((B, 4), int32)
    cache = {name: Tensor((9, 256, HK, D)) for name in ("kcache", "vcache")}
    call(runtime, "fwd_kvcache", block_table=table, **cache)
    args = runtime.forward_args()
    assert (args.block_table, args.block_table_stride, args.page_size) == (table.data_ptr(), 4, 256)
    assert (args.seqlen_k, of(args.k)) == (1024, at(cache["kcache"]))


def test_fwd_kvcache_pads_a_head_dim_that_8_does_not_divide_and_copies_back(runtime) -> None:
    d = 59
    new = {name: Tensor((B, 4, HK, d)) for name in "kv"}
    cache = {name: Tensor((B, 512, HK, d)) for name in ("kcache", "vcache")}
    given = Tensor((B, 1, H, d))
    lengths = Tensor((B,), int32)
    (out, _), _ = call(runtime, "fwd_kvcache", q=Tensor((B, 1, H, d)), out=given, seqlens_k=lengths, **new, **cache)
    args = runtime.forward_args()
    assert args.head_dim == 64
    assert out.shape == (B, 1, H, d)
    assert args.o.data == out.base.data_ptr() != given.data_ptr()
    assert [kind for kind, _ in given.done] == ["copy"]
    for name, address in (("kcache", args.k), ("vcache", args.v)):
        ((kind, padded),) = cache[name].done
        assert (kind, padded.data_ptr(), padded.shape[-1]) == ("copy", address.data, 64)


@pytest.mark.parametrize("function", ["bwd", "varlen_bwd"])
def test_the_backward_pass_fills_the_struct(runtime, function) -> None:
    packed = function == "varlen_bwd"
    rng_state = Tensor((2,), int64)
    (dq, dk, dv, softmax_d), given = call(
        runtime, function, rng_state=rng_state, p_dropout=0.1, deterministic=True, is_causal=True
    )
    args = runtime.backward_args()
    assert sizes(args) == ((B, 150, 90, H, HK, D) if packed else (B, SQ, SK, H, HK, D))
    assert Flag(args.flags) == Flag.CAUSAL | Flag.DETERMINISTIC
    assert args.dropout == pytest.approx(0.1)
    tensors = {"q": given["q"], "k": given["k"], "v": given["v"], "o": given["out"], "d_o": given["dout"]}
    for name, tensor in (tensors | {"dq": dq, "dk": dk, "dv": dv}).items():
        assert of(getattr(args, name)) == at(tensor, packed=packed), name
    assert (args.lse, args.softmax_d) == (given["softmax_lse"].data_ptr(), softmax_d.data_ptr())
    assert args.rng_state == rng_state.data_ptr()
    assert args.family == 0
    assert (dq.shape, dk.shape, dv.shape) == (given["q"].shape, given["k"].shape, given["v"].shape)
    if packed:
        assert (args.total_q, args.total_k) == LENGTHS
        assert args.cu_seqlens_q == given["cu_seqlens_q"].data_ptr()
        assert args.cu_seqlens_k == given["cu_seqlens_k"].data_ptr()
        assert softmax_d.shape == (H, LENGTHS[0] + 128 * B)
    else:
        assert all_zero(args, "total_q", "total_k", "cu_seqlens_q", "cu_seqlens_k")
        assert softmax_d.shape == (B, H, 384)
    assert runtime.torch.cuda.default_generators[0].offset_ == 0, "the forward pass took the numbers"


def test_gradients_are_written_where_they_are_given(runtime) -> None:
    wide = Tensor((B, SQ, H, D), strides=(SQ * 3 * H * D, 3 * H * D, D, 1))
    dk = Tensor((B, SK, HK, D))
    (dq, got, dv, _), _ = call(runtime, "bwd", dq=wide, dk=dk)
    args = runtime.backward_args()
    assert dq is wide
    assert got is dk
    assert (of(args.dq), of(args.dk), of(args.dv)) == (at(wide), at(dk), at(dv))


def test_zero_tensors_clears_gradients_and_the_workspace(runtime) -> None:
    runtime.answers(workspace=64)
    (*gradients, softmax_d), _ = call(runtime, "varlen_bwd", zero_tensors=True)
    assert [t.done for t in (*gradients, softmax_d)] == [["zero"]] * 4
    assert runtime.torch.workspaces[0].done == ["zero"]


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, 6])
def test_what_the_library_refuses_is_a_runtime_error_with_its_text(runtime, function, status) -> None:
    runtime.answers(status=status)
    with pytest.raises(RuntimeError, match=r"^dropout is 0\.1; the selection 'training' has it$"):
        call(runtime, function)


WRONG = [
    ("fwd", {"q": Tensor((B, SQ, H, D), float32)}, "FlashAttention only support fp16 and bf16 data type"),
    ("fwd", {"k": Tensor((B, SK, HK, D), bfloat16)}, "query and key must have the same dtype"),
    ("fwd", {"v": Tensor((B, SK, HK, D), bfloat16)}, "query and value must have the same dtype"),
    ("fwd", {"q": Tensor((B, SQ, H, D), device=CPU)}, "q must be on CUDA, and is on cpu"),
    ("fwd", {"k": Tensor((B, SK, HK, D), device=CPU)}, "k must be on CUDA"),
    ("fwd", {"v": Tensor((B, SK, HK, D), device=Device("cuda", 1))}, "v is on cuda:1 and q on cuda:0"),
    ("fwd", {"q": Tensor((B, SQ, H, D), strides=(9, 9, 9, 2))}, "Input tensor must have contiguous last dimension"),
    ("fwd", {"k": Tensor((B, SK, HK, D), strides=(9, 9, 9, 2))}, "Input tensor must have contiguous last dimension"),
    ("fwd", {"q": Tensor((SQ, H, D))}, "q must have shape (batch_size, seqlen_q, num_heads, head_size)"),
    ("fwd", {"k": Tensor((SK, HK, D))}, "k must have shape (batch_size, seqlen_k, num_heads_k, head_size)"),
    ("fwd", {"k": Tensor((B, SK, HK, 32))}, "k must have shape"),
    ("fwd", {"k": Tensor((B + 1, SK, HK, D))}, "k must have shape"),
    ("fwd", {"v": Tensor((B, SK + 1, HK, D))}, "v must have shape"),
    ("fwd", {"v": Tensor((B, SK, H, D))}, "v must have shape"),
    ("fwd", {n: Tensor((0, 9, HK, D)) for n in "qkv"}, "batch size must be positive"),
    ("fwd", {"out": Tensor((B, SQ, H, D), bfloat16)}, "Output must have the same dtype as inputs"),
    ("fwd", {"out": Tensor((B, SQ, H, D), device=CPU)}, "out must be on CUDA"),
    ("fwd", {"out": Tensor((B, SK, H, D))}, "out must have shape"),
    ("fwd", {"out": Tensor((B, SQ, H, D), strides=(9, 9, 9, 2))}, "Output tensor must have contiguous last dimension"),
    ("fwd", {"alibi_slopes": Tensor((H,), float16)}, "ALiBi slopes must have dtype fp32"),
    ("fwd", {"alibi_slopes": Tensor((H,), float32, CPU)}, "alibi_slopes must be on CUDA"),
    ("fwd", {"alibi_slopes": Tensor((H,), float32, strides=(2,))}, "ALiBi slopes tensor must have contiguous last"),
    ("fwd", {"alibi_slopes": Tensor((B, HK), float32)}, "alibi_slopes must have shape (num_heads) or (batch_size"),
    ("fwd", {"return_softmax": True}, "return_softmax is only supported when p_dropout > 0.0"),
    ("fwd", {"p_dropout": 0.1, "softcap": 1.0}, "Softcapping does not support dropout for now"),
    ("varlen_fwd", {"cu_seqlens_q": Tensor((B + 1,), int64)}, "cu_seqlens_q must have dtype int32"),
    ("varlen_fwd", {"cu_seqlens_k": Tensor((B + 1,), int32, CPU)}, "cu_seqlens_k must be on CUDA"),
    ("varlen_fwd", {"cu_seqlens_k": Tensor((B + 1,), int32, strides=(2,))}, "cu_seqlens_k must be contiguous"),
    ("varlen_fwd", {"cu_seqlens_k": Tensor((B,), int32)}, "cu_seqlens_k must have shape (batch_size + 1)"),
    ("varlen_fwd", {"cu_seqlens_q": Tensor((1,), int32)}, "batch size must be positive"),
    ("varlen_fwd", {"q": Tensor((1, 9, H, D))}, "q must have shape (total_q, num_heads, head_size)"),
    ("varlen_fwd", {"k": Tensor((1, 9, HK, D))}, "k must have shape (total_k, num_heads_k, head_size)"),
    ("varlen_fwd", {"v": Tensor((9, HK, D))}, "v must have shape (total_k, num_heads_k, head_size)"),
    ("varlen_fwd", {"seqused_k": Tensor((B,), int64)}, "seqused_k must have dtype int32"),
    ("varlen_fwd", {"leftpad_k": Tensor((B + 1,), int32)}, "leftpad_k must have shape (batch_size)"),
    ("varlen_fwd", {"block_table": Tensor((B, 3), int32)}, "k must have shape (num_blocks, page_block_size"),
    ("varlen_fwd", {"p_dropout": 0.1, "softcap": 1.0}, "Softcapping does not support dropout for now"),
    ("fwd_kvcache", {"kcache": Tensor((B, 512, HK, D), bfloat16)}, "query and key must have the same dtype"),
    ("fwd_kvcache", {"vcache": Tensor((B, 512, HK, D), device=CPU)}, "vcache must be on CUDA"),
    ("fwd_kvcache", {"kcache": Tensor((512, HK, D))}, "kcache must have shape (batch_size_c"),
    ("fwd_kvcache", {"vcache": Tensor((B, 256, HK, D))}, "vcache must have shape (batch_size_c"),
    ("fwd_kvcache", {n: Tensor((1, 512, HK, D)) for n in ("kcache", "vcache")}, "kcache holds 1 sequences and q has 2"),
    ("fwd_kvcache", {"k": Tensor((B, 1, HK, D))}, "If key is supplied, value must also be passed in"),
    ("fwd_kvcache", {n: Tensor((B, 1, HK, D)) for n in "kv"}, "If key is supplied, seqlens_k must also be passed in"),
    ("fwd_kvcache", {"rotary_cos": Tensor((512, 8))}, "If rotary cos/sin are provided, new key / value"),
    ("fwd_kvcache", {"seqlens_k": Tensor((B,), int64)}, "seqlens_k must have dtype int32"),
    ("fwd_kvcache", {"cache_batch_idx": Tensor((B,), int64)}, "cache_batch_idx must have dtype int32"),
    (
        "fwd_kvcache",
        {"block_table": Tensor((B, 2), int32), "cache_batch_idx": Tensor((B,), int32)},
        "Paged KVcache does not support cache_batch_idx",
    ),
    (
        "fwd_kvcache",
        {"block_table": Tensor((B, 2), int32), "leftpad_k": Tensor((B,), int32)},
        "We don't support Paged KV and leftpad_k running at the same time yet",
    ),
    ("fwd_kvcache", {"block_table": Tensor((B, 2), int64)}, "block_table must have dtype torch.int32"),
    ("fwd_kvcache", {"block_table": Tensor((B, 2), int32, CPU)}, "block_table must be on CUDA"),
    ("fwd_kvcache", {"block_table": Tensor((B, 2), int32, strides=(4, 2))}, "block_table must have contiguous last"),
    ("fwd_kvcache", {"block_table": Tensor((2 * B,), int32)}, "block_table must have shape"),
    ("bwd", {"dout": Tensor((B, SQ, H, D), bfloat16)}, "query and dout must have the same dtype"),
    ("bwd", {"out": Tensor((B, SQ, H, D), device=CPU)}, "out must be on CUDA"),
    ("bwd", {"out": Tensor((B, SQ, H, D), strides=(9, 9, 9, 2))}, "out tensor must have contiguous last dimension"),
    ("bwd", {"dout": Tensor((B, SQ, H, D), strides=(9, 9, 9, 2))}, "dout tensor must have contiguous last dimension"),
    ("bwd", {"dq": Tensor((B, SQ, H, D), bfloat16)}, "dq must have the same dtype as q"),
    ("bwd", {"dk": Tensor((B, SK, H, D))}, "dk must have shape"),
    ("bwd", {"dv": Tensor((B, SK, HK, D), strides=(9, 9, 9, 2))}, "dv must have contiguous last dimension"),
    ("bwd", {"softmax_lse": Tensor((B, H, SQ), float32, CPU)}, "softmax_lse must be on CUDA"),
    ("bwd", {"softmax_lse": Tensor((B, SQ, H), float32)}, "softmax_lse must have shape"),
    ("bwd", {"softmax_lse": Tensor((B, H, SQ), float16)}, "softmax_lse must be contiguous and have dtype fp32"),
    ("bwd", {"rng_state": Tensor((2,), int64, CPU)}, "rng_state must be on CUDA"),
    ("bwd", {"rng_state": Tensor((2,), int32)}, "rng_state must be what the forward pass returned"),
    ("bwd", {"p_dropout": 0.1, "softcap": 1.0}, "Softcapping does not support dropout for now"),
    ("varlen_bwd", {"cu_seqlens_k": Tensor((B + 1,), int64)}, "cu_seqlens_k must have dtype int32"),
    ("varlen_bwd", {"dout": Tensor((9, H, D))}, "dout must have shape (total_q, num_heads, head_size)"),
    ("varlen_bwd", {"softmax_lse": Tensor((B, H, 150), float32)}, "softmax_lse must have shape (num_heads, total_q)"),
]


@pytest.mark.parametrize(("function", "changed", "text"), WRONG, ids=[f"{f}-{t[:40]}" for f, _, t in WRONG])
def test_a_wrong_call_says_what_is_wrong_and_launches_nothing(runtime, function, changed, text) -> None:
    with pytest.raises(RuntimeError, match=re.escape(text)):
        call(runtime, function, **changed)
    assert runtime.calls == 0


@pytest.mark.parametrize(("family", "number"), [("", 0), ("fa2", 2), ("FA4 ", 4)])
@pytest.mark.parametrize("function", CALLS)
def test_every_call_asks_for_the_family_that_the_environment_names(runtime, number, function) -> None:
    call(runtime, function)
    args = runtime.backward_args() if "bwd" in function else runtime.forward_args()
    assert args.size >= type(args).family.offset + type(args).family.size or not number
    assert (args.family if args.size > type(args).family.offset else 0) == number


@pytest.mark.parametrize(
    ("family", "library", "said"),
    [
        ("", b"version https://git-lfs", r"libflashattention.so.1 cannot be loaded: .*install it again"),
        ("fa5", b"", "FLASH_ATTENTION_FAMILY is 'fa5': expected fa2, fa3 or fa4"),
    ],
)
def test_a_damaged_library_and_an_unknown_family_are_import_errors(
    installed_runtime, tmp_path, monkeypatch, family, library, said
) -> None:
    shutil.copytree(installed_runtime, tmp_path / "site")
    if library:
        (tmp_path / "site/flash_attn_2_cuda/lib/libflashattention.so.1").write_bytes(library)
    monkeypatch.setenv("FLASH_ATTENTION_FAMILY", family)
    for name, module in fake_torch.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(ImportError, match=said):
        importlib.import_module("flash_attn_2_cuda")
    for name in [name for name in sys.modules if name.partition(".")[0] == "flash_attn_2_cuda"]:
        del sys.modules[name]
