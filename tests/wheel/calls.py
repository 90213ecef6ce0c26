"""Correct calls of flash_attn_2_cuda; every argument can be replaced by name."""

from __future__ import annotations

from fake_torch import Tensor, float32, int32

B, SQ, SK, H, HK, D = 2, 300, 200, 6, 2, 64
LENGTHS = (260, 140)  # total rows of q and k in packed calls


def dense(**changed):
    arguments = {
        "q": Tensor((B, SQ, H, D)),
        "k": Tensor((B, SK, HK, D)),
        "v": Tensor((B, SK, HK, D)),
        "out": None,
        "alibi_slopes": None,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "is_causal": False,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "return_softmax": False,
        "gen": None,
    }
    return replaced(arguments, changed)


def varlen(**changed):
    total_q, total_k = LENGTHS
    arguments = {
        "q": Tensor((total_q, H, D)),
        "k": Tensor((total_k, HK, D)),
        "v": Tensor((total_k, HK, D)),
        "out": None,
        "cu_seqlens_q": Tensor((B + 1,), int32),
        "cu_seqlens_k": Tensor((B + 1,), int32),
        "seqused_k": None,
        "leftpad_k": None,
        "block_table": None,
        "alibi_slopes": None,
        "max_seqlen_q": 150,
        "max_seqlen_k": 90,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "zero_tensors": False,
        "is_causal": False,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "return_softmax": False,
        "gen": None,
    }
    return replaced(arguments, changed)


def kvcache(**changed):
    arguments = {
        "q": Tensor((B, 1, H, D)),
        "kcache": Tensor((B, 512, HK, D)),
        "vcache": Tensor((B, 512, HK, D)),
        "k": None,
        "v": None,
        "seqlens_k": None,
        "rotary_cos": None,
        "rotary_sin": None,
        "cache_batch_idx": None,
        "leftpad_k": None,
        "block_table": None,
        "alibi_slopes": None,
        "out": None,
        "softmax_scale": 0.125,
        "is_causal": False,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "is_rotary_interleaved": False,
        "num_splits": 0,
    }
    return replaced(arguments, changed)


def backward(**changed):
    arguments = {
        "dout": Tensor((B, SQ, H, D)),
        "q": Tensor((B, SQ, H, D)),
        "k": Tensor((B, SK, HK, D)),
        "v": Tensor((B, SK, HK, D)),
        "out": Tensor((B, SQ, H, D)),
        "softmax_lse": Tensor((B, H, SQ), float32),
        "dq": None,
        "dk": None,
        "dv": None,
        "alibi_slopes": None,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "is_causal": False,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "deterministic": False,
        "gen": None,
        "rng_state": None,
    }
    return replaced(arguments, changed)


def varlen_backward(**changed):
    total_q, total_k = LENGTHS
    arguments = {
        "dout": Tensor((total_q, H, D)),
        "q": Tensor((total_q, H, D)),
        "k": Tensor((total_k, HK, D)),
        "v": Tensor((total_k, HK, D)),
        "out": Tensor((total_q, H, D)),
        "softmax_lse": Tensor((H, total_q), float32),
        "dq": None,
        "dk": None,
        "dv": None,
        "cu_seqlens_q": Tensor((B + 1,), int32),
        "cu_seqlens_k": Tensor((B + 1,), int32),
        "alibi_slopes": None,
        "max_seqlen_q": 150,
        "max_seqlen_k": 90,
        "p_dropout": 0.0,
        "softmax_scale": 0.125,
        "zero_tensors": False,
        "is_causal": False,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "deterministic": False,
        "gen": None,
        "rng_state": None,
    }
    return replaced(arguments, changed)


def replaced(arguments, changed):
    assert set(changed) <= set(arguments), set(changed) - set(arguments)
    return arguments | changed
