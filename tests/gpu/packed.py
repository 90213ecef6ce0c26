"""Packed problems: sequences one after the other, with rows of no sequence behind them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from attention import (
    POISON_16,
    POISON_32,
    ForwardCall,
    Guarded,
    Problem,
    add_workspace,
    attend,
    check_lse,
    largest,
    poisoned_floats,
)

from support.fa_abi import ForwardArgs, Library

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


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def starts(lengths: tuple[int, ...]) -> list[int]:
    return [0, *accumulate(lengths)]


@dataclass
class PackedCall(ForwardCall):
    """A packed problem with its buffers, ready to run."""

    problem: Packed
    library: Library
    device: int = 0
    workspace: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        p = self.problem
        self.total_q, self.total_k = sum(p.lengths_q) + p.spare, sum(p.lengths_k) + p.spare
        rows = replace(p, batch=1, layout=p.layout if p.layout != "sbhd" else "bshd")
        self.q, self.o = Guarded(rows, self.total_q, p.heads_q), Guarded(rows, self.total_q, p.heads_q)
        if p.page_size:
            self.pages = [-(-length // p.page_size) for length in p.lengths_k]
            paged = replace(rows, batch=sum(self.pages) + 2)
            self.k, self.v = (Guarded(paged, p.page_size, p.heads_k) for _ in range(2))
        else:
            self.k, self.v = (Guarded(rows, self.total_k, p.heads_k) for _ in range(2))
        self.lse_storage = poisoned_floats(p.heads_q * self.total_q)
        self.lists = {"cu_seqlens_q": int32(starts(p.lengths_q)), "cu_seqlens_k": int32(starts(p.lengths_k))}
        if p.used:
            self.lists["seqused_k"] = int32(list(p.used))
        if p.leftpad:
            self.lists["leftpad_k"] = int32(list(p.leftpad))
        self.alibi: torch.Tensor | None = None
        self.refill(p.seed)
        self.args = self.make_args()
        self.workspace = add_workspace(self.library, self.args)

    def refill(self, seed: int) -> None:
        p = self.problem
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self.q.fill(generator, p.softcap or 1.0)
        self.k.fill(generator)
        self.v.fill(generator)
        if p.page_size:
            shuffled = torch.randperm(sum(self.pages) + 2, generator=generator, device="cuda").to(torch.int32)
            width = max([1, *self.pages])
            table = torch.full((p.batch, width + 1), -1, dtype=torch.int32, device="cuda")
            for i, (start, count) in enumerate(zip(starts(tuple(self.pages)), self.pages, strict=False)):
                table[i, :count] = shuffled[start : start + count]
            self.lists["block_table"] = table
        if p.alibi:
            shape = (p.heads_q,) if p.alibi == "h" else (p.batch, p.heads_q)
            self.alibi = torch.rand(shape, generator=generator, device="cuda") * 0.3

    def make_args(self) -> ForwardArgs:
        p = self.problem
        args = self.tensor_args(self.lists)
        args.total_q = self.total_q
        args.total_k = 0 if p.page_size else self.total_k
        args.page_size = p.page_size
        return args

    @property
    def lse(self) -> torch.Tensor:
        return self.lse_of(self.problem.heads_q, self.total_q)

    def queries_of(self, i: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return the rows of sequence i, (1, rows, heads, dim)."""
        start = starts(self.problem.lengths_q)[i]
        return tensor[:, start : start + self.problem.lengths_q[i]]

    def keys_of(self, i: int, tensor: torch.Tensor) -> torch.Tensor:
        p = self.problem
        first = p.leftpad[i] if p.leftpad else 0
        end = p.used[i] if p.used else p.lengths_k[i]
        if p.page_size:
            table = self.lists["block_table"][i, : self.pages[i]].long()
            return tensor[table].flatten(0, 1)[None, first:end]
        start = starts(p.lengths_k)[i]
        return tensor[:, start + first : start + end]

    def slopes_of(self, i: int) -> torch.Tensor | None:
        return None if self.alibi is None else self.alibi.expand(self.problem.batch, -1)[i : i + 1]

    def references(self, i: int, dtype: torch.dtype, scale_first: str = "k") -> tuple[torch.Tensor, torch.Tensor]:
        q = self.queries_of(i, self.q.tensor)
        k, v = self.keys_of(i, self.k.tensor), self.keys_of(i, self.v.tensor)
        return attend(self.problem, q, k, v, dtype, scale_first=scale_first, slopes=self.slopes_of(i))

    def check(self) -> None:
        """Hold each sequence against float64; and see that nothing else was written."""
        torch.cuda.synchronize()
        p = self.problem
        errors, bounds = [0.0], [1e-5]
        for i in range(p.batch):
            exact, exact_lse = self.references(i, torch.float64)
            o = self.queries_of(i, self.o.tensor)
            assert not o.isnan().any(), f"o of sequence {i} holds NaN"
            errors.append(largest(o.double() - exact))
            for first in ("k", "q"):
                plain = self.references(i, p.torch_dtype, first)[0]
                bounds.append(2 * largest(plain.double() - exact) + 1e-5)
            start = starts(p.lengths_q)[i]
            check_lse(p, self.lse[None, :, start : start + p.lengths_q[i]], exact_lse)
        assert max(errors) <= max(bounds), f"o: error {max(errors):.3g} over {max(bounds):.3g}"
        if p.seqlen_k != 0:  # without any key all rows are filled
            end = sum(p.lengths_q)
            spare = self.o.tensor[:, end:].contiguous().view(torch.int16)
            assert bool((spare == POISON_16).all()), "written to rows of no sequence"
            lse = self.lse[:, end:].contiguous().view(torch.int32)
            assert bool((lse == POISON_32).all()), "lse of rows of no sequence was written"
        self.assert_nothing_else_was_written()
