"""What the functions of FlashAttention-3 and -4 tell the C library, and what they refuse."""

import importlib
import inspect
import sys
from types import SimpleNamespace

import fake_torch
import pytest
from calls import HK, SK, SQ, B, D, H
from fake_torch import Tensor, int32

Q, K = (B, SQ, H, D), (B, SK, HK, D)
EMPTY_LSE_NEG_INF = 32
LENGTHS = Tensor((B + 1,), int32)


class Library:
    """A torch.library.Library that takes every definition."""

    def __init__(self, *_):
        self.made = {}

    def define(self, schema):
        name = schema.partition("(")[0]
        self.made[name] = schema

    def impl(self, name, function, key):
        assert name in self.made
        assert key == "CUDA"


@pytest.fixture
def names(runtime):
    """fa3 and fa4, over a torch before 2.4, whose tensors cannot be masked."""
    torch = runtime.torch
    torch.library = SimpleNamespace(Library=Library)
    fa3 = importlib.import_module("flash_attn_2_cuda.fa3")
    return SimpleNamespace(fa3=fa3, fa4=importlib.import_module("flash_attn_2_cuda.fa4"), runtime=runtime)


def dense(*, d=D, dv=D):
    return Tensor((*Q[:3], d)), Tensor((*K[:3], d)), Tensor((*K[:3], dv))


def test_both_say_a_dense_call_as_flash_attn_does(names):
    for call in (names.fa3.flash_attn_func, names.fa4.flash_attn_func):
        names.runtime.answers()
        q, k, v = dense()
        call(q, k, v, causal=True, softcap=15.0)
        arguments = names.runtime.forward_args()
        assert (arguments.q.data, arguments.k.data, arguments.v.data) == tuple(t.data_ptr() for t in (q, k, v))
        assert (arguments.flags, arguments.softcap, arguments.scale) == (1, 15.0, 0.125)


@pytest.mark.parametrize(
    ("window", "flags", "ends"), [((20, None), 2, (20, 0)), ((None, 5), 4, (0, 5)), ((7, 5), 6, (7, 5))]
)
def test_an_open_end_of_a_window_is_none_in_flash_attention_4(names, window, flags, ends):
    names.fa4.flash_attn_func(*dense(), window_size=window)
    arguments = names.runtime.forward_args()
    assert (arguments.flags, (arguments.window_left, arguments.window_right)) == (flags, ends)


def test_values_of_another_head_dim_are_the_librarys_and_over_a_cache_too(names):
    out, _ = names.fa4.flash_attn_func(*dense(dv=32))
    arguments = names.runtime.forward_args()
    assert (out.shape, arguments.head_dim, arguments.head_dim_v) == ((*Q[:3], 32), D, 32)
    names.runtime.answers()
    out, _ = names.fa4.flash_attn_varlen_func(*dense(dv=32), seqused_k=Tensor((B,), int32))
    arguments = names.runtime.forward_args()
    assert (out.shape, arguments.head_dim, arguments.head_dim_v) == ((*Q[:3], 32), D, 32)


def test_a_window_of_flash_attention_4_that_leaves_nothing_is_none_and_one_that_hides_the_nearest_keys_is_refused(
    names,
):
    names.fa4.flash_attn_func(*dense(), window_size=(-1, -1))
    assert names.runtime.forward_args().flags == 0
    with pytest.raises(RuntimeError, match=r"a window of \(None, -5\): no family .* hides the nearest keys"):
        names.fa4.flash_attn_func(*dense(), window_size=(None, -5))


@pytest.mark.parametrize("lengths", [{}, {"seqused_k": Tensor((B,), int32)}], ids=["dense", "over a cache"])
def test_a_sink_and_an_lse_of_minus_infinity_are_the_librarys(names, lengths):
    sink = Tensor((H,))
    _, lse = names.fa4.flash_attn_varlen_func(*dense(), causal=True, learnable_sink=sink, return_lse=True, **lengths)
    arguments = names.runtime.forward_args()
    assert arguments.sink not in (0, sink.data_ptr()), "the library wants it as float32"
    assert (arguments.flags, arguments.lse) == (1 | EMPTY_LSE_NEG_INF, lse.data_ptr())


def test_lengths_of_only_the_keys_are_a_cache(names):
    lengths = Tensor((B,), int32)
    names.fa4.flash_attn_varlen_func(*dense(), seqused_k=lengths)
    assert names.runtime.forward_args().cache_seqlens == lengths.data_ptr()


def test_words_of_family_fa3_are_the_librarys(names):
    q, k, v = dense()
    names.fa3.flash_attn_func(q, k, v, qv=Tensor(Q), attention_chunk=7, window_size=(3, -1))
    arguments = names.runtime.forward_args()
    assert (arguments.attention_chunk, arguments.out_dtype, arguments.family) == (7, 0, 0)
    assert (arguments.flags, arguments.window_left, arguments.head_dim_v) == (2, 3, D)
    assert arguments.qv.data != 0
    assert arguments.scale == pytest.approx((2 * D) ** -0.5), "the second product has its share"


def test_only_the_backward_pass_of_what_has_none_is_refused(names):
    q, k, v = dense()
    q.requires_grad = True
    names.fa3.flash_attn_func(q, k, v, qv=Tensor(Q), attention_chunk=7)
    assert names.runtime.forward_args().attention_chunk == 7
    with pytest.raises(RuntimeError, match="no backward pass"):
        importlib.import_module("flash_attn_2_cuda.fp8")._WithoutBackward.backward()


def test_factors_have_a_shape_and_a_type(names):
    with pytest.raises(RuntimeError, match="k_descale must have shape"):
        names.fa3.flash_attn_func(*dense(), k_descale=Tensor((B,)))
    with pytest.raises(RuntimeError, match="k_descale must have dtype float32"):
        names.fa3.flash_attn_func(*dense(), k_descale=Tensor((B, HK)))
    assert names.runtime.calls == 0


@pytest.mark.parametrize(
    "name",
    ["qv", "gather_kv_indices", "score_mod", "score_mod_bwd", "mask_mod", "aux_tensors", "aux_scalars",
     "block_sparse_tensors", "block_sparse_tensors_bwd"],
)  # fmt: skip
def test_what_the_library_does_not_have_is_refused_by_name(names, name):
    with pytest.raises(RuntimeError, match=rf"^{name} is set: .+flashdepot's"):
        names.fa4.flash_attn_func(*dense(), **{name: 3})
    assert names.runtime.calls == 0


def test_an_argument_that_nobody_knows_is_a_type_error(names):
    with pytest.raises(TypeError, match="'nonsense'"):
        names.fa4.flash_attn_func(*dense(), nonsense=1)


def test_metadata_of_a_schedule_has_upstreams_fields_and_goes_back_into_a_call(names):
    made = names.fa4.get_scheduler_metadata(cu_seqlens_q=LENGTHS, causal=False)
    assert made.tile_count_semaphore is made.num_m_blocks_ptr is None
    assert made.cu_total_m_blocks.numel() == 0
    names.fa4.flash_attn_varlen_func(*dense(), scheduler_metadata=made)


PLAIN = {
    "dense": (Q, K, {}),
    "window": (Q, K, {"left": 20, "right": 5, "causal": False}),
    "softcap": (Q, K, {"softcap": 30.0, "deterministic": True, "flags": EMPTY_LSE_NEG_INF}),
    "packed": ((260, H, D), (140, HK, D), {"cu_seqlens_q": LENGTHS, "cu_seqlens_k": LENGTHS, "max_seqlen_q": 150}),
}


@pytest.mark.parametrize(("shape", "shape_k", "how"), PLAIN.values(), ids=PLAIN)
def test_a_plain_backward_pass_says_what_a_whole_one_says(names, shape, shape_k, how):
    attention = importlib.import_module("flash_attn_2_cuda.attention")
    how = attention.How(**{"scale": 0.125, "causal": True, **how})
    q, k, v, out, d_out = Tensor(shape), Tensor(shape_k), Tensor(shape_k), Tensor(shape), Tensor(shape)
    lse = Tensor((B, H, SQ), fake_torch.float32)
    names.runtime.answers(workspace=1000)
    like = attention._like(q, k, v, how, None)
    kept = SimpleNamespace(saved_tensors=(q, k, v, out, lse, None), how=how, like=like)
    made = attention._backward(kept, d_out, None)
    short = names.runtime.backward_args()
    assert made[3:] == (None, None, None)
    assert (short.dq.data, short.dk.data, short.dv.data) == tuple(t.data_ptr() for t in made[:3])
    (memory,) = names.runtime.torch.workspaces
    assert (short.workspace, short.workspace_bytes, short.softmax_d) == (memory.data_ptr(), 1000, None)
    short = numbers_of(short)
    names.runtime.answers()
    *_, softmax_d = attention.gradients(d_out, q, k, v, out, lse, how)
    whole = names.runtime.backward_args()
    assert numbers_of(whole) == short
    assert whole.softmax_d == softmax_d.data_ptr()


def numbers_of(arguments):
    """All of a struct but the addresses of what is written."""
    made = {}
    for name, *_ in arguments._fields_:
        value = getattr(arguments, name)
        if name in {"dq", "dk", "dv"}:
            made[name] = (value.batch_stride, value.row_stride, value.head_stride)
        elif hasattr(value, "data"):
            made[name] = (value.data, value.batch_stride, value.row_stride, value.head_stride)
        elif name not in {"softmax_d", "workspace", "workspace_bytes"}:
            made[name] = value
    return made


@pytest.mark.parametrize("strided", ["q", "d_out"])
def test_a_backward_pass_over_strided_tensors_is_the_whole_one(names, strided):
    attention = importlib.import_module("flash_attn_2_cuda.attention")
    far = (SQ * H * 2 * D, H * 2 * D, 2 * D, 1)
    q, out, d_out = Tensor(Q, strides=far if strided == "q" else None), Tensor(Q), Tensor(Q)
    if strided == "d_out":
        d_out = Tensor(Q, strides=far)
    saved = (q, Tensor(K), Tensor(K), out, Tensor((B, H, SQ), fake_torch.float32), None)
    how = attention.How(scale=0.125)
    like = attention._like(*saved[:3], how, None)
    attention._backward(SimpleNamespace(saved_tensors=saved, how=how, like=like), d_out, None)
    assert getattr(names.runtime.backward_args(), "q" if strided == "q" else "d_o").row_stride == H * 2 * D


def test_head_dims_are_judged_as_upstream_judges_them(names):
    names.fa4._validate_head_dims(192, 128, 9, 8)
    for dims in ((4, 4), (148, 148), (288, 288)):
        with pytest.raises(AssertionError, match="not supported"):
            names.fa4._validate_head_dims(*dims, 9, 8)


@pytest.mark.parametrize("dims", [(4, 4), (148, 148), (288, 64), (64, 288)])
def test_a_call_with_a_head_dim_that_no_kernel_has_is_upstreams_error(names, dims):
    names.runtime.torch.cuda.get_device_capability = lambda _: (9, 0)
    with pytest.raises(
        AssertionError, match=rf"\(head_dim, head_dim_v\)=\({dims[0]}, {dims[1]}\) is not supported on SM90"
    ):
        names.fa4.flash_attn_func(*dense(d=dims[0], dv=dims[1]))


def test_lengths_of_rotary_embedding_are_taken_where_they_are_those_of_the_cache(names):
    lengths, other, q, cache = Tensor((B,), int32), Tensor((B,), int32), Tensor((B, 1, H, D)), Tensor((B, 64, HK, D))
    table = Tensor((64, D // 2))
    rotary = {"rotary_cos": table, "rotary_sin": table}
    new = (Tensor((B, 1, HK, D)), Tensor((B, 1, HK, D)))
    call = names.fa3.flash_attn_with_kvcache
    call(q, cache, cache, *new, cache_seqlens=lengths, rotary_seqlens=lengths, **rotary)
    assert names.runtime.forward_args().rotary_dim == D
    with pytest.raises(RuntimeError, match=r"seqlens_rotary is set: .+ pass that tensor, or none"):
        call(q, cache, cache, *new, cache_seqlens=lengths, rotary_seqlens=other, **rotary)
    with pytest.raises(RuntimeError, match="new key / value"):
        call(q, cache, cache, cache_seqlens=lengths, **rotary)
    names.runtime.answers()
    call(q, cache, cache, cache_seqlens=lengths, rotary_seqlens=other)
    assert names.runtime.forward_args().rotary_dim == 0


def test_an_index_of_the_batch_over_pages_chooses_the_rows_of_their_table(names):
    index, lengths, pages = Tensor((B,), int32), Tensor((B,), int32), Tensor((64, 16, HK, D))
    new, table = Tensor((B, 1, HK, D)), Tensor((B + 5, 8), int32)
    cached = {"cache_seqlens": lengths, "cache_batch_idx": index, "page_table": table}
    names.fa3.flash_attn_with_kvcache(Tensor((B, 1, H, D)), pages, pages, new, new, **cached)
    arguments = names.runtime.forward_args()
    assert (arguments.batch, arguments.block_table_stride, arguments.cache_batch_idx) == (B, 8, None)
    assert arguments.block_table not in {None, table.data_ptr()}


def test_an_empty_batch_has_an_empty_result(names):
    q, k, v = Tensor((0, SQ, H, D)), Tensor((0, SK, HK, D)), Tensor((0, SK, HK, 32))
    for call in (names.fa3.flash_attn_func, names.fa4.flash_attn_func):
        out = call(q, k, v)
        assert (out[0] if isinstance(out, tuple) else out).shape == (0, SQ, H, 32)
    assert names.fa4.flash_attn_func(q, k, v, return_lse=True)[1].shape == (0, H, SQ)
    assert names.runtime.calls == 0


def test_every_operator_has_the_arguments_of_its_schema(names):
    functions = {"fwd": names.fa3._forward, "bwd": names.fa3._backward, "fwd_combine": names.fa3.flash_attn_combine}
    for name, function in functions.items():
        schema = names.fa3._operators.made[name].partition("(")[2].partition(") ->")[0]
        words = [argument.partition("=")[0].split()[-1] for argument in schema.split(",")]
        ours = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        assert ours == [{"q_v": "qv"}.get(word, word) for word in words]


def test_a_torch_before_2_4_compiles_nothing_and_says_so(names, monkeypatch):
    monkeypatch.setattr(sys.modules["flash_attn_2_cuda.attention"], "is_compiling", lambda: True)
    with pytest.raises(RuntimeError, match=r"torch\.compile .* need torch 2\.4"):
        names.fa3.flash_attn_func(*dense())


def test_torchs_operator_writes_gradients_where_they_are_given_and_returns_what_upstreams_returns(names):
    q, k, v = dense()
    out, d_out, dq, dk, dv = Tensor(Q), Tensor(Q), Tensor(Q), Tensor(K), Tensor(K)
    made = names.fa3._backward(d_out, q, k, v, out, Tensor((B, H, SQ), fake_torch.float32), dq, dk, dv)
    arguments = names.runtime.backward_args()
    assert (arguments.dq.data, arguments.dk.data, arguments.dv.data) == tuple(t.data_ptr() for t in (dq, dk, dv))
    assert [tensor.data_ptr() for tensor in made] == [arguments.softmax_d, 0, 0, 0, 0]
    names.runtime.answers()
    softmax_d = names.fa3._flash_attn_backward(d_out, q, k, v, out, Tensor((B, H, SQ), fake_torch.float32), dq=dq)
    assert softmax_d.data_ptr() == names.runtime.backward_args().softmax_d


@pytest.mark.parametrize("packed", [False, True])
def test_tensors_that_hold_nothing_go_through_torchs_dispatcher(names, monkeypatch, packed):
    made = Tensor((260, H, D) if packed else Q), Tensor((H, 260) if packed else (B, H, SQ))
    attention = importlib.import_module("flash_attn_2_cuda.attention")
    for module in (attention, names.fa4):
        monkeypatch.setattr(module, "OPERATOR", lambda *_: made)
    lists = (
        {"cu_seqlens_q": LENGTHS, "cu_seqlens_k": LENGTHS, "max_seqlen_q": 150, "max_seqlen_k": 90} if packed else {}
    )
    tensors = [Tensor((rows, h, D)) for rows, h in ((260, H), (140, HK), (140, HK))] if packed else dense()
    names.runtime.torch.around.dispatch_modes = 1  # a FakeTensorMode
    assert names.fa4._flash_attn_fwd(*tensors, **lists, return_lse=True) == made
    out = Tensor(made[0].shape)
    out.copy_ = lambda other: other is made[0] and out
    assert names.fa4._flash_attn_fwd(*tensors, **lists, out=out) == (out, None)
    gradients = (*map(Tensor, (tensor.shape for tensor in tensors)), Tensor((0,)))
    monkeypatch.setattr(names.fa4, "BACKWARD_OPERATOR", lambda *_: gradients)
    assert names.fa4._flash_attn_bwd(*tensors, made[0], made[0], made[1], **lists) == gradients[:3]
    assert names.runtime.calls == 0
