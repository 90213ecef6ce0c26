"""The C library next to this file, its structs and its numbers, for torch's module and for JAX's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import CDLL
from pathlib import Path
from struct import Struct
from typing import Any

from .layout import CAUSAL, WINDOW_LEFT, WINDOW_RIGHT

FILE = Path(__file__).parent / "lib" / ("flashattention.dll" if sys.platform == "win32" else "libflashattention.so.1")


def open_library(advice: str) -> CDLL:
    """Load it.

    :raises ImportError: if it cannot be loaded, with ``advice`` on how to install the wheel again.
    """
    try:
        return CDLL(str(FILE))
    except OSError as error:
        raise ImportError(
            f"{FILE} cannot be loaded: {error}. The wheel was made for another system, or a file of it is damaged: "
            f"install it again{advice}",
            name=__package__,
            path=str(FILE),
        ) from error


def struct_of(fields: Sequence[tuple[str, str]]) -> Struct:
    """The packed bytes of a struct with some fields of layout.py.

    Native alignment puts the padding where the compiler does; "0Q" ends where the next struct would begin.
    """
    return Struct("@" + "".join(code for _, code in fields) + "0Q")


SMALLEST_SCALE = 1.1754944e-38
"""The smallest normal float. Scores times it vanish next to 1, as they do times 0, which the C library takes for "not
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
