"""The functions of FlashAttention-4's ``flash_attn.cute``, without CuTe DSL: nothing is compiled when they are called.

Names, arguments and results are upstream's. What only chooses among its kernels (num_splits, pack_gqa, tile_mn and the
like) is accepted and ignored: the library chooses. What upstream compiles for a call is refused.
"""

# ruff: noqa: ARG001  (the signatures are upstream's)
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .attention import BACKWARD_OPERATOR, OPERATOR, attend, attention, combine, gradients, how_of, is_ordinary, refuse
from .sequences import attention_in_parts, how_of_gradients, need_parts

_JIT = "it is compiled for the call, by FlashAttention-4 with CuTe DSL: use upstream's flash-attn-4 for this call"
_WHY = {
    **dict.fromkeys(("score_mod", "score_mod_bwd", "mask_mod", "aux_tensors", "aux_scalars"), _JIT),
    **dict.fromkeys(("block_sparse_tensors", "block_sparse_tensors_bwd"), _JIT),
    "qv": "flash_attn_interface has it here, in a wheel with family fa3",
    "gather_kv_indices": "no family of the library has sparse MLA",
    **dict.fromkeys(
        ("q_descale", "k_descale", "v_descale"), "flash_attn_interface has FP8 here, in a wheel with family fa3"
    ),
}
_HINT_WORDS = (
    "num_splits pack_gqa min_seqlen_k tile_mn mma_pv_is_rs intra_wg_overlap num_threads _arch scheduler_metadata "
    "seqlen_k_per_split disable_scheduler_metadata gather_bwd_recompute_p gather_bwd_token_chunk m_block_size n_block_size "
    "num_stages_Q num_stages_dO SdP_swapAB dKV_swapAB dQ_swapAB AtomLayoutMSdP AtomLayoutNdKV AtomLayoutMdQ V_in_regs"
)
_HINTS = frozenset(_HINT_WORDS.split())
"""Arguments that choose among upstream's kernels, or prepare their run."""


def _window(causal: bool, left: int | None, right: int | None) -> tuple[int | None, int | None]:
    """The ends as upstream takes them: None is open, both are where they leave nothing, others may hide the nearest keys."""
    right = 0 if causal else right
    if left is not None and right is not None and left + right < 0:
        return None, None
    if (left or 0) < 0 or (right or 0) < 0:
        raise refuse(f"a window of ({left}, {right})", "no family of the library hides the nearest keys")
    return left, right


class SchedulerMetadataTensorsTorch(NamedTuple):
    """The fields of upstream's class of this name."""

    num_m_blocks_ptr: Any = None
    num_splits_dynamic_ptr: Any = None
    virtual_batch_idx_ptr: Any = None
    num_nheads_in_l2_ptr: Any = None
    tile_count_semaphore: Any = None
    cu_total_m_blocks: Any = None
    cu_total_splits_m_blocks: Any = None
    blocks_to_batch_idx: Any = None


def get_scheduler_metadata(*_: Any, **__: Any) -> SchedulerMetadataTensorsTorch:
    """What the functions here take as scheduler_metadata: nothing has to be prepared, and the one tensor is empty."""
    return SchedulerMetadataTensorsTorch(cu_total_m_blocks=torch.empty(0, dtype=torch.int32, device="cuda"))


def flash_attn_combine(
    out_partial: Any, lse_partial: Any, out: Any = None, out_dtype: Any = None, cu_seqlens: Any = None,
    seqused: Any = None, virtual_batch_idx: Any = None, return_lse: bool = True, **others: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """One result of partial ones, as the FlashAttention-3 function; rows beyond ``seqused`` are combined too."""
    if virtual_batch_idx is not None:
        raise refuse("virtual_batch_idx is set", "nothing here reorders the batch")
    _require_none((), others)
    made, lse = combine(out_partial, lse_partial, out, out_dtype)
    return made, lse if return_lse else None


def flash_attn_func(
    q: Any, k: Any, v: Any, qv: Any = None, gather_kv_indices: Any = None, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Any = None, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    aux_tensors: Any = None, aux_scalars: Any = None, block_sparse_tensors: Any = None,
    block_sparse_tensors_bwd: Any = None, return_lse: bool = False, **others: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Attention over q (b, sq, h, d), k (b, sk, hk, d) and v (b, sk, hk, dv): out, and lse (b, h, sq) or None."""
    _require_dims(q, v)
    jit = (score_mod, score_mod_bwd, mask_mod, aux_tensors, aux_scalars, block_sparse_tensors, block_sparse_tensors_bwd)
    _require_none((*jit, qv, gather_kv_indices), others)
    window = _window(causal, *window_size)
    how = how_of(q, softmax_scale, causal, window, softcap, deterministic=deterministic, lse=return_lse)
    out, lse = attention(q, k, v, how, learnable_sink, lse=return_lse)
    return out, lse if return_lse else None


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, qv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, min_seqlen_k: int | None = None,
    seqused_q: Any = None, seqused_k: Any = None, gather_kv_indices: Any = None, page_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), learnable_sink: Any = None, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None, block_sparse_tensors: Any = None,
    aux_tensors: Any = None, aux_scalars: Any = None, return_lse: bool = False, **others: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Attention over sequences that are packed, or (b, s, ..) with lengths, on either side; keys may be in pages."""
    _require_dims(q, v)
    jit = (score_mod, score_mod_bwd, mask_mod, aux_tensors, aux_scalars, block_sparse_tensors, None)
    _require_none((*jit, qv, gather_kv_indices), others)
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, page_table)
    window = _window(causal, *window_size)
    how = how_of(q, softmax_scale, causal, window, softcap, lengths, deterministic=deterministic, lse=return_lse)
    if need_parts(q, k, v, how, 0, seqused_q):
        out, lse = attention_in_parts(q, k, v, how, 0, seqused_q, learnable_sink, lse=return_lse)
    else:
        out, lse = attention(q, k, v, how, learnable_sink, lse=return_lse)
    return out, lse if return_lse else None


def _flash_attn_fwd(
    q: Any, k: Any, v: Any, qv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    seqused_q: Any = None, seqused_k: Any = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    min_seqlen_k: int | None = None, page_table: Any = None, softmax_scale: float | None = None,
    causal: bool = False, softcap: float | None = None, window_size_left: int | None = None,
    window_size_right: int | None = None, learnable_sink: Any = None, *, return_lse: bool = False, out: Any = None,
    lse: Any = None, **others: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return out and lse, which is what torch's FA4 reads of upstream's results."""
    _require_dims(q, v)
    _require_none((*(None,) * 7, qv), others)
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, page_table)
    asked = return_lse or lse is not None
    window = _window(causal, window_size_left, window_size_right)
    how = how_of(q, softmax_scale, causal, window, softcap or 0.0, lengths, lse=asked)
    is_direct = OPERATOR is None or is_ordinary(q, k, v, learnable_sink)
    if is_direct and seqused_q is None:
        made, statistics = attend(q, k, v, how, learnable_sink, out)
    else:
        with torch.no_grad():
            if seqused_q is None:
                made, statistics = attention(q, k, v, how, learnable_sink)
            else:
                made, statistics = attention_in_parts(
                    q, k, v, how, 0, seqused_q, learnable_sink, recorded=not is_direct
                )
        made = made if out is None else out.copy_(made)
    return made, (statistics if lse is None else lse.copy_(statistics)) if asked else None


def _flash_attn_bwd(
    q: Any, k: Any, v: Any, out: Any, dout: Any, lse: Any, softmax_scale: float | None = None, causal: bool = False,
    softcap: float = 0.0, window_size_left: int | None = None, window_size_right: int | None = None, *,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, seqused_q: Any = None, seqused_k: Any = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, deterministic: bool = False,
    dq: Any = None, dk: Any = None, dv: Any = None, dlse: Any = None, learnable_sink: Any = None, **others: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return dq, dk and dv, written where they are given, and with learnable_sink its gradient."""
    _require_none((), others)
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, None)
    window = _window(causal, window_size_left, window_size_right)
    how = how_of(q, softmax_scale, causal, window, softcap, lengths, deterministic=deterministic, lse=True)
    how = how_of_gradients(q, k, v, how, seqused_q)
    given = (dq, dk, dv, None)
    if BACKWARD_OPERATOR is None or is_ordinary(q, k, v, learnable_sink):
        made = gradients(dout, q, k, v, out, lse, how, given[:3], d_lse=dlse, sink=learnable_sink)
    else:
        written = BACKWARD_OPERATOR(dout, dlse, q, k, v, out, lse, learnable_sink, *how)
        made = tuple(one if into is None else into.copy_(one) for one, into in zip(written, given))
    return made[: 3 if learnable_sink is None else 4]


def _require_dims(q: Any, v: Any) -> None:
    dim, dim_v = q.shape[-1], v.shape[-1]
    if dim % 8 or dim_v % 8 or dim > 256 or dim_v > 256:  # noqa: PLR2004
        _validate_head_dims(dim, dim_v, torch.cuda.get_device_capability(q.device)[0], 8)


def _validate_head_dims(head_dim: int, head_dim_v: int, compute_capability: int, alignment: int) -> None:
    """Raise AssertionError, as upstream does, for head dims that no call takes."""
    if not all(0 < dim <= 256 and dim % alignment == 0 for dim in (head_dim, head_dim_v)):  # noqa: PLR2004
        raise AssertionError(
            f"(head_dim, head_dim_v)=({head_dim}, {head_dim_v}) is not supported on SM{compute_capability}0: both must be "
            f"multiples of {alignment}, up to 256"
        )


def _require_none(given: tuple[Any, ...], others: dict[str, Any]) -> None:
    """Refuse what the library does not have, by the first of its names that is set, and names that nobody knows.

    :param given: the values of the first of _WHY's names.
    """
    if not others and all(value is None for value in given):
        return
    for name, value in (*zip(_WHY, given), *others.items()):
        if name in _HINTS or value is None:
            continue
        if name not in _WHY:
            raise TypeError(f"flash_attn.cute got an unexpected keyword argument '{name}'")
        raise refuse(f"{name} is set", _WHY[name])
