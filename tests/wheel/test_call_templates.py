"""A call like an earlier one is laid out as that one was, with its own addresses; any other is laid out again."""

import importlib
from types import SimpleNamespace

import pytest
from calls import HK, LENGTHS, SK, SQ, B, D, H, dense, kvcache, varlen
from fake_torch import Device, Tensor, bfloat16, int32

from support.fa_abi import BackwardArgs, ForwardArgs

CALLS = {"fwd": dense, "varlen_fwd": varlen, "fwd_kvcache": kvcache}


@pytest.fixture
def templates(runtime):
    return importlib.import_module("flash_attn_2_cuda.templates")


def call(runtime, function, **changed):
    runtime.answers(workspace=1000)
    return getattr(runtime.module, function)(*CALLS[function](**changed).values())


def fields_of(struct, *left_out):
    """Name and value of all fields, those of tensors one by one."""
    found = {}
    for name, kind in struct._fields_:
        value = getattr(struct, name)
        if hasattr(kind, "_fields_"):
            found |= {f"{name}.{part}": getattr(value, part) for part, _ in kind._fields_ if "reserved" not in part}
        else:
            found[name] = value
    assert set(left_out) <= set(found)
    return {name: value for name, value in found.items() if name not in left_out}


RESULTS = ("o.data", "lse", "workspace")


def variants():
    strided = {"strides": (SQ * 3 * H * D, 3 * H * D, D, 1)}
    cache, new = (B, 512, HK, D), (B, 3, HK, D)
    return {
        "fwd": ("fwd", dict),
        "strided": ("fwd", lambda: {"q": Tensor((B, SQ, H, D), **strided), "is_causal": True}),
        "bf16": (
            "fwd",
            lambda: {n: Tensor((B, s, h, D), bfloat16) for n, s, h in (("q", SQ, H), ("k", SK, HK), ("v", SK, HK))},
        ),
        "window": ("fwd", lambda: {"window_size_left": 7, "window_size_right": 9, "softcap": 30.0}),
        "varlen": ("varlen_fwd", lambda: {"is_causal": True, "softmax_scale": 0.3}),
        "cache": ("fwd_kvcache", lambda: {"seqlens_k": Tensor((B,), int32)}),
        "appended": ("fwd_kvcache", lambda: {"k": Tensor(new), "v": Tensor(new), "seqlens_k": Tensor((B,), int32)}),
        "pages": (
            "fwd_kvcache",
            lambda: {
                **{name: Tensor((9, 256, HK, D)) for name in ("kcache", "vcache")},
                "block_table": Tensor((B, 4), int32),
                "seqlens_k": Tensor((B,), int32),
                "num_splits": 3,
            },
        ),
        "strided cache": (
            "fwd_kvcache",
            lambda: {"kcache": Tensor(cache, strides=(512 * 2 * HK * D, 2 * HK * D, D, 1))},
        ),
    }


@pytest.mark.parametrize("variant", variants())
def test_a_call_like_an_earlier_one_has_its_struct_and_its_own_addresses(runtime, templates, variant):
    function, changed = variants()[variant]
    first = call(runtime, function, **changed())
    assert not runtime.torch.undispatched
    given = changed()
    again = call(runtime, function, **given)
    filled = ForwardArgs.from_buffer_copy(runtime.forward_args())
    out, lse, workspace = runtime.torch.undispatched
    assert (filled.o.data, filled.lse, filled.workspace) == (out.data_ptr(), lse.data_ptr(), workspace.data_ptr())
    assert [(t.shape, t.stride(), t.dtype) for t in first[:2]] == [(t.shape, t.stride(), t.dtype) for t in again[:2]]
    assert again[0] is out
    assert again[1] is lse
    assert workspace.numel() == filled.workspace_bytes == 1000
    arguments = CALLS[function](**given)
    runtime.answers(workspace=1000)
    getattr(runtime.module, function)(*arguments.values())
    refilled = ForwardArgs.from_buffer_copy(runtime.forward_args())
    templates._templates.clear()
    runtime.answers(workspace=1000)
    getattr(runtime.module, function)(*arguments.values())
    assert fields_of(refilled, *RESULTS) == fields_of(runtime.forward_args(), *RESULTS)


@pytest.mark.parametrize(
    "changed",
    [
        lambda: {"q": Tensor((B, SQ + 1, H, D))},
        lambda: {"k": Tensor((B, SK, HK, D), strides=(SK * HK * D * 2, HK * D * 2, D, 1))},
        lambda: {"is_causal": True},
        lambda: {"softmax_scale": 0.25},
        lambda: {"window_size_left": 5},
        lambda: {"softcap": 1.0},
        lambda: {"out": Tensor((B, SQ, H, D))},
        lambda: {"alibi_slopes": Tensor((H,), importlib.import_module("fake_torch").float32)},
        lambda: {
            n: Tensor((B, s, h, D), device=Device(index=1)) for n, s, h in (("q", SQ, H), ("k", SK, HK), ("v", SK, HK))
        },
    ],
    ids=["rows", "strides", "causal", "scale", "window", "softcap", "out", "ALiBi", "device"],
)
def test_another_call_is_laid_out_again(runtime, templates, changed):
    call(runtime, "fwd")
    call(runtime, "fwd", **changed())
    assert not runtime.torch.undispatched


def test_a_call_on_a_device_that_is_not_the_current_one_is_laid_out(runtime, templates):
    call(runtime, "fwd")
    runtime.torch.cuda.current = 1
    call(runtime, "fwd")
    assert not runtime.torch.undispatched


def test_a_length_that_is_a_tensor_may_change_and_is_read_in_every_call(runtime, templates):
    class Length(Tensor):
        value = 150

        def __index__(self):
            return self.value

        def __ge__(self, other):
            return self.value >= other

        def __gt__(self, other):
            return self.value > other

    longest = Length((), int32)
    call(runtime, "varlen_fwd", max_seqlen_q=longest)
    longest.value = 151
    call(runtime, "varlen_fwd", max_seqlen_q=longest)
    assert runtime.forward_args().seqlen_q == 151
    assert not templates._templates


def test_a_refusal_is_the_whole_ways_and_the_struct_is_forgotten(runtime, templates):
    call(runtime, "fwd")
    runtime.answers(status=2)
    with pytest.raises(RuntimeError, match="the selection 'training' has it"):
        runtime.module.fwd(*dense().values())
    assert not templates._templates


def test_the_oldest_structs_do_not_pile_up(runtime, templates, monkeypatch):
    monkeypatch.setattr(templates, "_MOST", 3)
    for rows in range(1, 8):
        call(runtime, "fwd", q=Tensor((B, rows, H, D)))
        assert len(templates._templates) <= 3


def test_the_three_of_a_packed_tensor_need_no_views_the_second_time(runtime, templates):
    eager = importlib.import_module("flash_attn_2_cuda.eager")
    how = (0.0, None, True, (-1, -1), 0.0, None, False, False, True)
    eager._dense_qkv(Tensor((B, SQ, 3, H, D)), *how)
    qkv = Tensor((B, SQ, 3, H, D))
    qkv.unbind = None
    runtime.answers()
    out = eager._dense_qkv(qkv, *how)
    args = runtime.forward_args()
    assert [args.q.data, args.k.data, args.v.data] == [qkv.data_ptr() + i * H * D * 2 for i in range(3)]
    assert (args.q.batch_stride, args.k.row_stride, args.v.head_stride) == (SQ * 3 * H * D, 3 * H * D, D)
    assert (args.o.data, args.flags, args.scale) == (out.data_ptr(), 1, 0.125)


@pytest.mark.parametrize("packed", [False, True])
def test_a_backward_pass_like_an_earlier_one_has_its_struct(runtime, templates, packed):
    attention = importlib.import_module("flash_attn_2_cuda.attention")
    rows = ((LENGTHS[0], H, D), (LENGTHS[1], HK, D)) if packed else ((B, SQ, H, D), (B, SK, HK, D))
    lists = (Tensor((B + 1,), int32), Tensor((B + 1,), int32)) if packed else (None, None)

    def differentiate(d_out_strides=None):
        q, k, v, out = (Tensor(rows[i]) for i in (0, 1, 1, 0))
        lse = Tensor((H, LENGTHS[0]) if packed else (B, H, SQ))
        how = attention.How(*lists, None, 150 if packed else None, 90 if packed else None, None, 0.125, True)
        like = attention._like(q, k, v, how, None)
        kept = SimpleNamespace(saved_tensors=(q, k, v, out, lse, None), how=how, like=like)
        d_out = Tensor(rows[0], strides=d_out_strides)
        runtime.answers(workspace=1000)
        made = attention._backward(kept, d_out, None)[:3]
        args = BackwardArgs.from_buffer_copy(runtime.backward_args())
        given = [
            (args.q, q),
            (args.k, k),
            (args.v, v),
            (args.o, out),
            *zip((args.dq, args.dk, args.dv), made, strict=True),
        ]
        assert [at.data for at, _ in given] == [tensor.data_ptr() for _, tensor in given]
        assert (args.lse, args.workspace_bytes) == (lse.data_ptr(), 1000)
        assert (args.cu_seqlens_q, args.cu_seqlens_k) == tuple(t and t.data_ptr() for t in lists)
        return args, d_out

    left_out = ["q.data", "k.data", "v.data", "o.data", "d_o.data", "dq.data", "dk.data", "dv.data", "lse", "workspace"]
    first, _ = differentiate()
    second, d_out = differentiate()
    assert len(runtime.torch.undispatched) == 4
    assert (second.d_o.data, second.softmax_d) == (d_out.data_ptr(), None)
    assert fields_of(first, *left_out) == fields_of(second, *left_out)
    sparse = (*(0 for _ in rows[0][:-1]), 0)  # what the sum of out gives its gradient
    for _ in range(2):
        differentiate(sparse)
        assert len(runtime.torch.undispatched) == 4
