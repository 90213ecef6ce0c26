"""Dropout of a call: where its seed comes from, and which probabilities it dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention import POISON_16, Call
from packed import PackedCall

if TYPE_CHECKING:
    import torch
else:
    from torch_with_gpu import torch


class Dropping:
    """Makes a call drop out, and keeps what it writes about that."""

    def __init__(self, call: Call | PackedCall, seed: int = 1234, offset: int = 56, *, debug: bool = True) -> None:
        p = call.problem
        self.call = call
        self.rng_state = torch.full((2,), -1, dtype=torch.int64, device="cuda")
        self.pointers: torch.Tensor | None = None
        shape = (p.batch, p.heads_q, -(-p.seqlen_q // 128) * 128, -(-p.seqlen_k // 128) * 128)
        self.p_debug = torch.full(shape, POISON_16, dtype=torch.int16, device="cuda")
        args = call.args
        args.seed, args.offset = seed, offset
        args.rng_state = self.rng_state.data_ptr()
        args.p_debug = self.p_debug.data_ptr() if debug else None

    def from_device(self, seed: int, offset: int, intragraph: int = 0) -> None:
        """Take seed and offset from device memory, which may change between replays."""
        if self.pointers is None:
            self.pointers = torch.zeros(2, dtype=torch.int64, device="cuda")
        self.pointers.copy_(torch.tensor([seed, offset]))
        args = self.call.args
        args.seed_ptr, args.offset_ptr = self.pointers.data_ptr(), self.pointers.data_ptr() + 8
        args.offset_intragraph = intragraph

    def kept(self, length_q: int | None = None, length_k: int | None = None, i: int | None = None) -> torch.Tensor:
        """Return what was not dropped, (b, h, t, s), or (1, h, t, s) of one sequence."""
        p = self.call.problem
        signs = self.p_debug < 0  # the sign bit; poison has it clear
        signs = signs if i is None else signs[i : i + 1]
        length_q, length_k = (
            n if given is None else given for given, n in ((length_q, p.seqlen_q), (length_k, p.seqlen_k))
        )
        return ~signs[:, :, :length_q, :length_k]
