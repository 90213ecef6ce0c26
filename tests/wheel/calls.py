"""Correct calls of flash_attn_2_cuda; every argument can be replaced by name."""

from fake_torch import Tensor, float32, int32

B, SQ, SK, H, HK, D = 2, 300, 200, 6, 2, 64
LENGTHS = (260, 140)  # total rows of q and k in packed calls


MASK = {"softmax_scale": 0.125, "is_causal": False, "window_size_left": -1, "window_size_right": -1, "softcap": 0.0}
ALL_Q, ALL_K = LENGTHS
"""Rows of packed calls."""


def none(names):
    return dict.fromkeys(names.split())


def qkv(rows_q, rows_k):
    return {"q": Tensor((*rows_q, H, D)), "k": Tensor((*rows_k, HK, D)), "v": Tensor((*rows_k, HK, D))}


def lengths():
    return {"cu_seqlens_q": Tensor((B + 1,), int32), "cu_seqlens_k": Tensor((B + 1,), int32)}


def dense(**changed):
    arguments = {
        **qkv((B, SQ), (B, SK)),
        **none("out alibi_slopes"),
        "p_dropout": 0.0,
        **MASK,
        "return_softmax": False,
        "gen": None,
    }
    return replaced(arguments, changed)


def varlen(**changed):
    arguments = {
        **qkv((ALL_Q,), (ALL_K,)),
        "out": None,
        **lengths(),
        **none("seqused_k leftpad_k block_table alibi_slopes"),
        "max_seqlen_q": 150,
        "max_seqlen_k": 90,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "zero_tensors": False,
        **MASK,
        "return_softmax": False,
        "gen": None,
    }
    return replaced(arguments, changed)


def kvcache(**changed):
    arguments = {
        "q": Tensor((B, 1, H, D)),
        "kcache": Tensor((B, 512, HK, D)),
        "vcache": Tensor((B, 512, HK, D)),
        **none("k v seqlens_k rotary_cos rotary_sin cache_batch_idx leftpad_k block_table alibi_slopes out"),
        **MASK,
        "is_rotary_interleaved": False,
        "num_splits": 0,
    }
    return replaced(arguments, changed)


def backward(**changed):
    arguments = {
        "dout": Tensor((B, SQ, H, D)),
        **qkv((B, SQ), (B, SK)),
        "out": Tensor((B, SQ, H, D)),
        "softmax_lse": Tensor((B, H, SQ), float32),
        **none("dq dk dv alibi_slopes"),
        "p_dropout": 0.0,
        **MASK,
        "deterministic": False,
        **none("gen rng_state"),
    }
    return replaced(arguments, changed)


def varlen_backward(**changed):
    arguments = {
        "dout": Tensor((ALL_Q, H, D)),
        **qkv((ALL_Q,), (ALL_K,)),
        "out": Tensor((ALL_Q, H, D)),
        "softmax_lse": Tensor((H, ALL_Q), float32),
        **none("dq dk dv"),
        **lengths(),
        "alibi_slopes": None,
        "max_seqlen_q": 150,
        "max_seqlen_k": 90,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "zero_tensors": False,
        **MASK,
        "deterministic": False,
        **none("gen rng_state"),
    }
    return replaced(arguments, changed)


def replaced(arguments, changed):
    assert set(changed) <= set(arguments), set(changed) - set(arguments)
    return arguments | changed
