"""Packed problems: sequences one after the other, with rows of no sequence behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attention import POISON_16, POISON_32, Call, Guarded, Part, Problem

from support.fa_abi import ForwardArgs

if TYPE_CHECKING:
    import torch
else:
    from torch_with_gpu import torch

SPARE = 5  # rows of no sequence


@dataclass(frozen=True)
class Packed(Problem):
    """A packed call. Lengths are cut to seqlen_q and seqlen_k; `used` are keys in use, `leftpad` keys skipped."""

    lengths_q: tuple[int, ...] = (128, 128)
    lengths_k: tuple[int, ...] = (128, 128)
    used: tuple[int, ...] = ()
    leftpad: tuple[int, ...] = ()
    page_size: int = 0
    spare: int = SPARE


def packed(lengths_q: tuple[int, ...], lengths_k: tuple[int, ...], **fields: object) -> Packed:
    """Make a problem of these lengths."""
    return Packed(
        batch=len(lengths_q),
        seqlen_q=max(lengths_q),
        seqlen_k=max(lengths_k),
        lengths_q=lengths_q,
        lengths_k=lengths_k,
        **fields,  # type: ignore[arg-type]
    )


UNEVEN = packed((113, 1, 128, 64), (203, 77, 128, 300))
EMPTY = packed((0, 113, 64, 0, 5), (50, 0, 203, 0, 1), heads_q=6, heads_k=3)
MANY = packed(tuple(range(30)) * 3, (*range(29), 300) * 3)
"""More sequences than blocks of a backward pass sort."""
DECODE = packed((1, 1, 1, 1, 1), (300, 1, 129, 1000, 77), heads_q=8, heads_k=2, spare=0, splits=0)


def int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(lengths)]


class PackedCall(Call):
    """A packed problem with its buffers."""

    def make_buffers(self) -> None:
        p = self.problem
        self.total_q, self.total_k = sum(p.lengths_q) + p.spare, sum(p.lengths_k) + p.spare
        self.lse_shape = (p.heads_q, self.total_q)
        rows = replace(p, batch=1, layout=p.layout if p.layout != "sbhd" else "bshd")
        self.q, self.o = (Guarded(rows, self.total_q, p.heads_q) for _ in range(2))
        self.lists = {"cu_seqlens_q": int32(starts(p.lengths_q)), "cu_seqlens_k": int32(starts(p.lengths_k))}
        if p.used:
            self.lists["seqused_k"] = int32(p.used)
        if p.leftpad:
            self.lists["leftpad_k"] = int32(p.leftpad)
        if not p.page_size:
            self.k, self.v = (Guarded(rows, self.total_k, p.heads_k) for _ in range(2))
            return
        self.pages = [-(-length // p.page_size) for length in p.lengths_k]
        paged = replace(rows, batch=sum(self.pages) + 2)
        self.k, self.v = (Guarded(paged, p.page_size, p.heads_k) for _ in range(2))
        generator = torch.Generator(device="cuda").manual_seed(p.seed)
        shuffled = torch.randperm(sum(self.pages) + 2, generator=generator, device="cuda").to(torch.int32)
        table = torch.full((p.batch, max([1, *self.pages]) + 1), -1, dtype=torch.int32, device="cuda")
        for i, (start, count) in enumerate(zip(starts(self.pages), self.pages, strict=False)):
            table[i, :count] = shuffled[start : start + count]
        self.lists["block_table"] = table

    def make_args(self) -> ForwardArgs:
        args = super().make_args()
        args.total_q, args.total_k = self.total_q, 0 if self.problem.page_size else self.total_k
        args.page_size = self.problem.page_size
        return args

    def keys_of(self, i: int, tensor: torch.Tensor) -> torch.Tensor:
        p = self.problem
        first = p.leftpad[i] if p.leftpad else 0
        end = p.used[i] if p.used else p.lengths_k[i]
        if p.page_size:
            table = self.lists["block_table"][i, : self.pages[i]].long()
            return tensor[table].flatten(0, 1)[None, first:end]
        start = starts(p.lengths_k)[i]
        return tensor[:, start + first : start + end]

    def parts(self) -> Iterator[Part]:
        p = self.problem
        for i, (start, length) in enumerate(zip(starts(p.lengths_q), p.lengths_q, strict=False)):
            own = slice(start, start + length)
            k, v = (self.keys_of(i, one.tensor) for one in (self.k, self.v))
            q, o = self.q.tensor[:, own], self.o.tensor[:, own]
            yield Part(i, q, k, v, o, self.lse[None, :, own], self.slopes_of(i))

    def check(self, dropping: Any = None) -> None:
        super().check(dropping)
        if self.problem.seqlen_k != 0:  # without any key all rows are filled
            end = sum(self.problem.lengths_q)
            spare = self.o.tensor[:, end:].contiguous().view(torch.int16)
            assert bool((spare == POISON_16).all()), "written to rows of no sequence"
            lse = self.lse[:, end:].contiguous().view(torch.int32)
            assert bool((lse == POISON_32).all()), "lse of rows of no sequence was written"
