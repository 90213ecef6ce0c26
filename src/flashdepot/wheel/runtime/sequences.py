"""Queries and keys in use of each sequence, and chunks, said as lists of packed sequences, which every family has.

What may see each other is a sequence of its own: the queries of a chunk with its keys. Queries that see nothing are
sequences without keys, so their out is 0, and keys that nobody sees are sequences without queries, so their gradients are 0.
In each the last query is the last key's, as it was in the whole: causal masks and windows stay what they are.
"""

from __future__ import annotations

from typing import Any

import torch

from .attention import How, attend, attention, refuse
from .layout import EMPTY_LSE_NEG_INF


def need_parts(q: Any, k: Any, v: Any, how: How, chunk: int = 0, seqused_q: Any = None) -> bool:
    """Whether a call is one for :func:`attention_in_parts`; with a gradient also if keys are in use, or one side is packed."""
    if chunk > 0 or seqused_q is not None:
        return True
    is_plain = how.seqused_k is None and (how.cu_seqlens_q is None) == (how.cu_seqlens_k is None)
    if is_plain or how.page_table is not None or not torch.is_grad_enabled():
        return False
    return bool(q.requires_grad or k.requires_grad or v.requires_grad)


def attention_in_parts(
    q: Any, k: Any, v: Any, how: How, chunk: int = 0, seqused_q: Any = None, sink: Any = None,
    *, lse: bool = True, recorded: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Attention with queries in use of each sequence (b), and keys, which how has, and chunks of so many keys; 0: one.

    :param q: packed, or (b, sq, h, d); so are k and v. Pages are refused.
    :param recorded: whether for a backward pass.
    """
    shape = q.shape
    q, k, v, how = in_parts(q, k, v, how, chunk, seqused_q)
    if lse:
        how = how._replace(flags=EMPTY_LSE_NEG_INF)
    out, statistics = attention(q, k, v, how, sink, lse=lse) if recorded else attend(q, k, v, how, sink)
    if len(shape) == 4:  # noqa: PLR2004
        out = out.unflatten(0, shape[:2])
        if lse:
            statistics = statistics.unflatten(1, shape[:2]).transpose(0, 1).contiguous()
    return out, statistics


def in_parts(q: Any, k: Any, v: Any, how: How, chunk: int, seqused_q: Any) -> tuple[Any, Any, Any, How]:
    """Return q, k and v packed, and how with the lists of their parts."""
    if how.page_table is not None:
        raise refuse("seqused_q or attention_chunk with page_table", "only family fa3 has it, for FP8 and qv")
    q, starts_q, ends_q, longest_q = _packed(q, how.cu_seqlens_q, how.max_seqlen_q)
    k, starts_k, ends_k, longest_k = _packed(k, how.cu_seqlens_k, how.max_seqlen_k)
    v = v.flatten(0, 1) if v.dim() == 4 else v  # noqa: PLR2004
    used_q = (ends_q - starts_q if seqused_q is None else seqused_q).unsqueeze(1)
    used_k = (ends_k - starts_k if how.seqused_k is None else how.seqused_k).unsqueeze(1)
    if chunk > 0:
        # Where chunks begin, and the end of the last one; the queries that are those keys'.
        keys = torch.arange(0, longest_k + chunk, chunk, dtype=torch.int32, device=q.device).minimum(used_k)
        queries = (keys + (used_q - used_k)).clamp_min(0)
    else:
        keys, queries = torch.cat((used_k * 0, used_k), 1), torch.cat((used_q * 0, used_q), 1)
    starts_q, starts_k = starts_q.unsqueeze(1), starts_k.unsqueeze(1)
    # Before the chunks queries before the first key, behind them the queries not in use, and then the keys.
    of_q = torch.cat((starts_q, starts_q + queries, ends_q.unsqueeze(1)), 1)
    of_k = torch.cat((starts_k, starts_k + keys, starts_k + used_k), 1)
    cu_q, cu_k = (
        torch.cat((of.flatten(), ends[-1:] if len(ends) else ends.new_zeros(1)))
        for of, ends in ((of_q, ends_q), (of_k, ends_k))
    )
    longest_k = min(longest_k, chunk) if chunk > 0 and how.seqused_k is None else longest_k
    lists = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "max_seqlen_q": longest_q, "max_seqlen_k": longest_k}
    return q, k, v, how._replace(seqused_k=None, **lists)


def how_of_gradients(q: Any, k: Any, v: Any, how: How, seqused_q: Any) -> How:
    """How a backward pass over packed sequences is done that may have queries and keys in use."""
    if seqused_q is None and how.seqused_k is None:
        return how
    if how.cu_seqlens_q is None or how.cu_seqlens_k is None:
        raise refuse("a backward pass with seqused_q or seqused_k", "pass cu_seqlens_q and cu_seqlens_k too")
    return in_parts(q, k, v, how, 0, seqused_q)[3]


def _packed(rows: Any, cu_seqlens: Any, longest: int | None) -> tuple[Any, Any, Any, int]:
    """The rows as one list, where each sequence starts and ends, and what none is longer than."""
    if cu_seqlens is not None:
        return rows, cu_seqlens[:-1], cu_seqlens[1:], rows.shape[0] if longest is None else int(longest)
    batch, length = rows.shape[:2]
    starts = torch.arange(batch, dtype=torch.int32, device=rows.device) * length
    return rows.flatten(0, 1), starts, starts + length, length
