"""Calls as candle's crates make them: tensors laid out in order, and the argument lists."""

import ctypes
from ctypes import c_float, c_int, c_uint32, c_void_p
from dataclasses import dataclass

POINTERS = ("q", "k", "v", "o", "lse", "alibi", "cu_q", "cu_k")
BATCH = ("q_batch", "k_batch", "v_batch", "o_batch", "alibi_batch")
ROW_AND_HEAD = ("q_row", "k_row", "v_row", "o_row", "q_head", "k_head", "v_head", "o_head")
SIZES = ("b", "h", "h_k", "d", "d_rounded")
LENGTHS = ("seqlen_q", "seqlen_k", "seqlen_q_rounded", "seqlen_k_rounded")
PAGES = ("block_table", "block_table_stride", "page_size", "prefix_ranges", "prefix_stride", "prefix_count", "stream")

V3 = 41
"""run_mha_v3, by its arguments; it is in the archive of run_mha's 45."""

_COMMON = (*POINTERS, *BATCH, *ROW_AND_HEAD, *SIZES, "scale", *LENGTHS)
NAMES = {
    35: (*_COMMON, "is_bf16", "is_causal", "left", "right"),
    37: (*_COMMON, "is_bf16", "is_causal", "unpadded_lse", "left", "right", "softcap"),
    V3: (
        *POINTERS[:6],
        "semaphore",
        *_COMMON[6:],
        *("is_bf16", "is_causal", "unpadded_lse", "gqa_packing", "left", "right", "total_q", "total_k", "stream"),
    ),
    45: (*_COMMON, "total_q", "is_bf16", "is_causal", "unpadded_lse", "left", "right", "softcap", *PAGES),
}
_TYPES = {
    **dict.fromkeys((*POINTERS, "semaphore", "block_table", "prefix_ranges", "stream"), c_void_p),
    **dict.fromkeys(("scale", "softcap"), c_float),
    **dict.fromkeys(
        ("is_bf16", "is_causal", "unpadded_lse", "gqa_packing", "left", "right", "page_size", "prefix_count"),
        c_int,
    ),
}
TYPES = {form: [_TYPES.get(name, c_uint32) for name in names] for form, names in NAMES.items()}


def dense(**changes: object) -> dict[str, object]:
    """Arguments for b 2, sq 100, sk 200, h 4, h_k 2, d 64, as `flash_attn` of candle would send them."""
    sizes = {"b": 2, "h": 4, "h_k": 2, "d": 64, "seqlen_q": 100, "seqlen_k": 200}
    sizes |= {name: value for name, value in changes.items() if name in sizes}
    h, h_k, d, sq, sk = (sizes[name] for name in ("h", "h_k", "d", "seqlen_q", "seqlen_k"))
    pointers = {name: 0x10000 * (i + 1) for i, name in enumerate(("q", "k", "v", "o", "lse"))}
    strides = {f"{name}_batch": rows * heads * d for name, rows, heads in _shapes(sq, sk, h, h_k)}
    strides |= {f"{name}_row": heads * d for name, _, heads in _shapes(sq, sk, h, h_k)}
    strides |= {f"{name}_head": d for name in "qkvo"}
    rounded = {"d_rounded": _up(d, 32), "seqlen_q_rounded": _up(sq, 128), "seqlen_k_rounded": _up(sk, 128)}
    numbers = {"scale": d**-0.5, "is_bf16": 1, "left": -1, "right": -1, "page_size": -1, "total_q": sizes["b"] * sq}
    every = dict.fromkeys((*NAMES[45], *NAMES[V3]), 0)
    return {**every, **sizes, **pointers, **strides, **rounded, **numbers, **changes}


def _shapes(sq: int, sk: int, h: int, h_k: int) -> tuple[tuple[str, int, int], ...]:
    return (("q", sq, h), ("k", sk, h_k), ("v", sk, h_k), ("o", sq, h))


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def packed(**changes: object) -> dict[str, object]:
    """Arguments for two sequences of together 150 queries, as `flash_attn_varlen` of candle would send them."""
    none = dict.fromkeys(("q_batch", "k_batch", "v_batch", "o_batch"), 0)
    varlen = {"cu_q": 0x60000, "cu_k": 0x61000, "unpadded_lse": 1, "total_q": 150, "page_size": 0}
    return dense(**{**none, **varlen, **changes})


def paged(**changes: object) -> dict[str, object]:
    """Arguments for the same over pages of 256 rows."""
    of_a_page = {"k_batch": 256 * 2 * 64, "v_batch": 256 * 2 * 64, "page_size": 256}
    return packed(**{**of_a_page, "block_table": 0x80000, "block_table_stride": 5, **changes})


@dataclass(frozen=True)
class Mha:
    """`run_mha` of one argument list in a loaded library."""

    library: ctypes.CDLL
    form: int

    def __call__(self, arguments: dict[str, object]) -> int:
        """Call it and return the status that it left behind."""
        function = self.library.run_mha_v3 if self.form == V3 else self.library.run_mha
        function.argtypes, function.restype = TYPES[self.form], None
        function(*(arguments[name] for name in NAMES[self.form]))
        status: int = self.library.fa_candle_last_status()
        return status

    @property
    def error(self) -> str:
        """The text of the last call that failed."""
        self.library.fa_candle_last_error.restype = ctypes.c_char_p
        text: bytes = self.library.fa_candle_last_error()
        return text.decode()
