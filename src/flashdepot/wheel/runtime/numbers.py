"""From upstream's numbers to those of the C library."""

from __future__ import annotations

from typing import Any

from .layout import CAUSAL, WINDOW_LEFT, WINDOW_RIGHT

SMALLEST_SCALE = 1.1754944e-38
"""The smallest normal float. Scores times it vanish beside 1, as they do times 0, which the C library takes for "not
given"."""

BLOCK = 128
"""Rows and columns of the debug probabilities, and rows of softmax_d, are rounded up to it."""


def windows(causal: bool, left: int, right: int, seqlen_k: int) -> tuple[int, int, int]:
    """The flags and the two ends of a window.

    Upstream says "unbounded" with a negative number, and takes one that spans all keys for unbounded as well.
    """
    flags = CAUSAL if causal else 0
    if 0 <= left < seqlen_k:
        flags |= WINDOW_LEFT
    else:
        left = 0
    if 0 <= right < seqlen_k and not causal:
        flags |= WINDOW_RIGHT
    else:
        right = 0
    return flags, left, right


def positive_scale(q: Any, scale: float) -> tuple[Any, float]:
    """Queries and a scale above 0 that give the same scores. Only a scale below 0 copies the queries."""
    if scale < 0:
        return -q, -scale
    return q, scale or SMALLEST_SCALE


def check_dropout(p_dropout: float, softcap: float, *, return_softmax: bool = False) -> None:
    """Refuse what upstream refuses of dropout."""
    if p_dropout > 0:
        if softcap > 0:
            raise RuntimeError("Softcapping does not support dropout for now")
    elif return_softmax:
        raise RuntimeError("return_softmax is only supported when p_dropout > 0.0")


def rounded(rows: int) -> int:
    """``rows`` rounded up to whole blocks."""
    return (rows + BLOCK - 1) // BLOCK * BLOCK
