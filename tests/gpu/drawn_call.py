"""The call of a drawn problem (drawn_problem.py) through the C ABI; and what is right, in float64.

What is beyond a sequence, and in pages of none, is not a number (for family fa3, which does not promise to pass over it,
other numbers), and so is every output before the call. An error may be that of rounding the terms to their type. Of FP8
the very values of the eight bits are the inputs of the reference: what differs is the rounding of the weights to them, at
most 2^-4 of each and independent of the others, which bounds the error of o, and its mean square. A softcap is made by the
GPU's own tanh, whose relative error is 2^-11. Before dirty calls all shared memory of the GPU is filled with what is not a number.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import torch
from drawn_problem import Problem
from shared_memory import Filler

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.fa_abi import Answer, BackwardArgs, Dtype, Family, Flag, ForwardArgs, Library, Status, Tensor

FAMILIES = {"fa2": Family.FA2, "fa3": Family.FA3, "fa4": Family.FA4, "best": 0}
TYPES = {
    "bf16": (torch.bfloat16, Dtype.BF16), "fp16": (torch.float16, Dtype.FP16), "e4m3": (torch.float8_e4m3fn, Dtype.E4M3),
}  # fmt: skip
NAN = float("nan")
OF_TANH = 2**-11
"""Relative error of tanh.approx.f32 (PTX ISA)."""
SPARE = 5
"""Rows of no sequence in a packed batch; with one query each they never make total_q the batch, which would promise one a sequence."""


def tensor_of(t: torch.Tensor, *, packed: bool = False) -> Tensor:
    """A tensor's address and strides."""
    batch, row, head = (0, *t.stride()[:2]) if packed else t.stride()[:3]
    return Tensor(t.data_ptr(), batch, row, head, 0, 0)


def bits(t: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, which torch indexes whatever the type."""
    return t.view(torch.uint8 if t.element_size() == 1 else torch.int16)


@functools.cache
def filler() -> Filler:
    return Filler()


class Case:
    """The tensors of a problem, its calls, and its exact answers."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.type, self.type_number = TYPES[p.type]
        source = torch.Generator(device="cuda").manual_seed(p.index)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=source).to(self.type)

        self.q, self.qv = normal(p.batch, p.sq, p.heads, p.dim), normal(p.batch, p.sq, p.heads, p.dim_v)
        if p.softcap:
            self.q *= p.softcap / 4  # so that the cap matters
        self.d_o = normal(p.batch, p.sq, p.heads, p.dim_v)
        self.k, self.v = normal(p.batch, p.capacity, p.heads_k, p.dim), normal(p.batch, p.capacity, p.heads_k, p.dim_v)
        self.sink = torch.randn(p.heads, device="cuda", generator=source) * 2 + 1
        self.d_lse = torch.randn(p.batch, p.heads, p.sq, device="cuda", generator=source)
        factors = torch.rand(3, p.batch, p.heads_k, device="cuda", generator=source) * 1.5 + 0.25
        self.factors = dict(zip(("q", "k", "v"), factors, strict=True))
        used = [n - m for n, m in zip(p.of_q, p.unused_q, strict=True)]
        lists = (torch.tensor(n, dtype=torch.int32, device="cuda") for n in (p.of_q, used, p.of_k))
        self.of_q, self.used_q, self.of_k = lists
        self.rows_q, self.mask_q = (
            torch.arange(p.sq, device="cuda")[None] < n[:, None] for n in (self.of_q, self.used_q)
        )
        self.mask_k = torch.arange(p.capacity, device="cuda")[None] < self.of_k[:, None]
        if p.page:
            each = p.capacity // p.page
            self.order = torch.randperm(p.batch * each + 3, device="cuda", generator=source)[: p.batch * each]
            self.table = self.order.view(p.batch, each).to(torch.int32).contiguous()
        self.beyond = 0.0 if p.fa3 else NAN
        self.keep: list[Any] = []

    def spoiled(self, padded: torch.Tensor) -> torch.Tensor:
        return padded if self.p.fa3 else padded.masked_fill(~self.mask_k[:, :, None, None], NAN)

    def paged(self, padded: torch.Tensor) -> torch.Tensor:
        p = self.p
        shape = (p.batch * (p.capacity // p.page) + 3, p.page, *padded.shape[2:])
        pool = torch.full(shape, self.beyond, device="cuda").to(self.type)
        bits(pool)[self.order] = bits(self.spoiled(padded)).reshape(-1, *shape[1:])
        return pool

    def pack(self, padded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = bits(padded)[mask]
        spare = torch.full((SPARE, *rows.shape[1:]), self.beyond, device="cuda").to(self.type)
        return torch.cat([rows, bits(spare)]).view(self.type)

    def appended(self, args: ForwardArgs) -> list[torch.Tensor]:
        """Keys and values whose last rows of each sequence are given apart, and are others in the cache."""
        p = self.p
        before = self.of_k - p.new
        args.cache_seqlens, args.seqlen_new = self.kept(before).data_ptr(), p.new
        rows = (before[:, None] + torch.arange(p.new, device="cuda")[None]).long()
        at = torch.arange(p.batch, device="cuda")[:, None]
        args.k_new, args.v_new = (
            tensor_of(self.kept(bits(t)[at, rows].contiguous().view(self.type))) for t in (self.k, self.v)
        )
        caches = [t.clone() for t in (self.k, self.v)]
        for cache in caches:
            bits(cache)[at, rows] = 1
        return caches

    def kept(self, t: torch.Tensor) -> torch.Tensor:
        self.keep.append(t)
        return t

    def ends(self, lengths: torch.Tensor) -> int:
        return self.kept(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)).data_ptr()

    def common(self, kind: type[Any], family: int) -> Any:
        p, args = self.p, kind(size=ctypes.sizeof(kind))
        args.dtype, args.family = self.type_number, family
        args.batch, args.seqlen_q, args.seqlen_k = p.batch, p.sq, p.capacity
        args.heads_q, args.heads_k, args.head_dim, args.head_dim_v = p.heads, p.heads_k, p.dim, p.dim_v
        args.scale, args.softcap = p.scale, p.softcap
        flags = Flag.CAUSAL if p.causal else 0
        if p.fixed and kind is BackwardArgs:
            flags |= Flag.DETERMINISTIC
        if p.left is not None:
            flags, args.window_left = flags | Flag.WINDOW_LEFT, p.left
        if p.right is not None:
            flags, args.window_right = flags | Flag.WINDOW_RIGHT, p.right
        args.flags = flags | (Flag.EMPTY_LSE_NEG_INF if p.negative else 0)
        args.sink = self.sink.data_ptr() if p.sink else None
        args.stream = torch.cuda.current_stream().cuda_stream
        return args

    def workspace(self, args: Any, bytes_needed: int) -> None:
        memory = self.kept(torch.full((bytes_needed + 16,), 0xFF, dtype=torch.uint8, device="cuda"))  # bf16 NaN
        args.workspace, args.workspace_bytes = (memory.data_ptr() if bytes_needed else None), bytes_needed
        if self.p.dirty:
            filler().fill(args.stream)

    def forward(self, library: Library, family: int) -> Answer:
        p, packed = self.p, self.p.packed
        args = self.common(ForwardArgs, family)
        args.num_splits, args.attention_chunk = p.splits, p.chunk
        q, qv = self.q, self.qv
        if packed:
            q, qv = self.pack(q, self.rows_q), self.pack(qv, self.rows_q)
            args.total_q, args.cu_seqlens_q, args.cu_seqlens_k = len(q), self.ends(self.of_q), self.ends(self.of_k)
            args.seqused_q = self.used_q.data_ptr() if any(p.unused_q) else None
        if p.page:
            k, v = self.paged(self.k), self.paged(self.v)
            args.block_table, args.block_table_stride = self.table.data_ptr(), self.table.stride(0)
            args.page_size = p.page
            if p.lengths_given:
                setattr(args, "seqused_k" if packed else "cache_seqlens", self.of_k.data_ptr())
                if packed:
                    args.cu_seqlens_k = self.ends(torch.full_like(self.of_k, p.capacity))
        elif packed:
            k, v = self.pack(self.k, self.mask_k), self.pack(self.v, self.mask_k)
            args.total_k = len(k)
        elif p.new:
            k, v = self.appended(args)
        else:
            k, v = self.spoiled(self.k), self.spoiled(self.v)
            args.cache_seqlens = self.of_k.data_ptr() if p.kind == "cache" else None
        self.tensors = (q, k, v)
        out = torch.bfloat16 if p.eight else self.type
        args.out_dtype = Dtype.BF16 if p.eight else 0
        self.o = torch.full((*q.shape[:-1], p.dim_v), NAN, device="cuda", dtype=out)
        self.lse = torch.full((p.heads, len(q)) if packed else (p.batch, p.heads, p.sq), NAN, device="cuda")
        args.q, args.o = tensor_of(q, packed=packed), tensor_of(self.o, packed=packed)
        args.k, args.v = (tensor_of(t, packed=packed and not p.page) for t in (k, v))
        if p.qv:
            args.qv = tensor_of(self.kept(qv), packed=packed)
        for name in p.factors:
            setattr(args, f"{name}_descale", self.factors[name].data_ptr())
            args.descale_batch_stride, args.descale_head_stride = p.heads_k, 1
        args.lse = self.lse.data_ptr()
        answer, needed, self.splits = library.fwd_workspace(args)
        if answer.status is not Status.OK:
            return answer
        self.workspace(args, needed)
        return library.fwd(args)

    def backward(self, library: Library, family: int) -> Answer:
        p, packed = self.p, self.p.packed
        args = self.common(BackwardArgs, family)
        q, k, v = self.tensors
        d_o = self.pack(self.d_o, self.mask_q) if packed else self.d_o
        d_lse = self.d_lse
        if packed:
            args.total_q, args.total_k = len(q), len(k)
            args.cu_seqlens_q, args.cu_seqlens_k = self.ends(self.of_q), self.ends(self.of_k)
            d_lse = torch.nn.functional.pad(self.d_lse.transpose(1, 2)[self.mask_q].t(), (0, SPARE)).contiguous()
        self.gradients = [torch.full_like(t, NAN) for t in (q, k, v)]
        self.d_sink = torch.full((p.heads,), NAN, device="cuda")
        rows = len(q) + 128 * p.batch if packed else p.batch * (-(-p.sq // 128) * 128)
        softmax_d = self.kept(torch.full((p.heads * rows,), NAN, device="cuda"))
        names = ("q", "k", "v", "o", "d_o", "dq", "dk", "dv")
        for name, t in zip(names, (q, k, v, self.o, self.kept(d_o), *self.gradients), strict=True):
            setattr(args, name, tensor_of(t, packed=packed))
        args.lse, args.softmax_d = self.lse.data_ptr(), softmax_d.data_ptr()
        args.d_lse = self.kept(d_lse).data_ptr() if p.with_d_lse else None
        args.d_sink = self.d_sink.data_ptr() if p.sink else None
        answer, needed = library.bwd_workspace(args)
        if answer.status is not Status.OK:
            return answer
        self.workspace(args, needed)
        return library.bwd(args)

    def bits_differ(self, library: Library) -> float:
        """0, or much if gradients have other bits the second time."""
        before = self.gradients
        answer = self.backward(library, 0)
        same = all(torch.equal(bits(a), bits(b)) for a, b in zip(before, self.gradients, strict=True))
        return 0.0 if same and answer.status is Status.OK else 1e9

    def answers(self) -> dict[str, torch.Tensor]:
        """What the calls gave, padded."""
        found = {"o": self.padded(self.o, self.rows_q), "lse": self.lse}
        if self.lse.dim() == 2:
            found["lse"] = self.padded(self.lse.t(), self.rows_q).transpose(1, 2)
        if self.p.gradients:
            masks = (self.mask_q, self.mask_k, self.mask_k)
            found |= {n: self.padded(t, m) for n, t, m in zip(("dq", "dk", "dv"), self.gradients, masks, strict=True)}
            found["d_sink"] = self.d_sink
        return found

    def padded(self, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not self.p.packed:
            return rows
        whole = rows.new_zeros(*mask.shape, *rows.shape[1:])
        whole[mask] = rows[: len(rows) - SPARE]
        return whole

    def hidden(self) -> torch.Tensor:
        """Which keys a query does not see, (batch, queries, keys)."""
        p = self.p
        row = torch.arange(p.sq, device="cuda")[None, :, None] + (self.of_k - self.used_q)[:, None, None]
        column = torch.arange(p.capacity, device="cuda")[None, None, :]
        hidden = ~(self.mask_q[:, :, None] & self.mask_k[:, None, :])
        if p.left is not None and p.leave_out != "left":
            hidden = hidden | (column < row - p.left)
        if p.causal or p.right is not None:
            hidden = hidden | (column > row + (p.right or 0))
        if p.chunk and p.leave_out != "chunk":
            hidden = hidden | (row.div(p.chunk, rounding_mode="floor") != column.div(p.chunk, rounding_mode="floor"))
        return hidden[:, None]

    def factor(self, name: str) -> torch.Tensor | float:
        if name not in self.p.factors or self.p.leave_out == f"{name}_descale":
            return 1.0
        return self.factors[name].double().repeat_interleave(self.p.heads // self.p.heads_k, 1)[:, :, None, None]

    def exact(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Of each answer what it should be, and what an error may be."""
        p, group = self.p, self.p.heads // self.p.heads_k

        def of_queries(t: torch.Tensor) -> torch.Tensor:
            return t.double().masked_fill(~self.mask_q[:, :, None, None], 0).transpose(1, 2)

        def of_keys(t: torch.Tensor) -> torch.Tensor:
            whole = t.double().masked_fill(~self.mask_k[:, :, None, None], 0).transpose(1, 2)
            if p.leave_out == "pages" and p.page:
                whole = whole.flip(2)
            return whole.repeat_interleave(group, 1)

        q, k, v, hidden = of_queries(self.q), of_keys(self.k), of_keys(self.v), self.hidden()
        scores = q @ k.transpose(-1, -2)
        if p.qv and p.leave_out != "qv":
            scores = scores + of_queries(self.qv) @ v.transpose(-1, -2)
        factor = p.scale * self.factor("q") * self.factor("k")
        scores, self.slope, off = scores * factor, 1.0, 0.0
        if p.softcap and p.leave_out != "softcap":
            bent = torch.tanh(scores / p.softcap)
            scores, off = bent * p.softcap, 1.1 * OF_TANH * p.softcap * bent.abs()
            self.slope = 1 - bent * bent if p.leave_out != "slope" else 1.0
        scores = scores.masked_fill(hidden, float("-inf"))
        lse = torch.logsumexp(scores, -1) if p.capacity else scores.new_full(scores.shape[:-1], float("-inf"))
        if p.sink and p.leave_out != "sink":
            lse = torch.logaddexp(lse, self.sink.double()[None, :, None].expand_as(lse))
        seen = lse.isfinite()
        weights = torch.exp(scores - lse.masked_fill(~seen, 0.0)[..., None])
        values = v * self.factor("v")
        o, size, size_of_lse = weights @ values, weights @ values.abs(), lse.masked_fill(~seen, 0.0).abs()
        unit = torch.finfo(self.o.dtype).eps
        self.of_weights = weights * off  # of each score's error, and of that of their sum
        of_sum = self.of_weights.sum(-1)
        self.of_weights = self.of_weights + weights * of_sum[..., None]
        of_o = unit * size * 1.1 + 1.5 * unit * o.abs() + self.of_weights @ values.abs() + 1e-6
        of_lse = 2e-4 + 2e-6 * size_of_lse + of_sum
        if p.fa3:
            part = 2**-4 if p.eight else 2**-8
            of_o = part * 1.2 * size + unit * o.abs() + 1e-4
            self.mean_square = part**2 / 3 * (weights**2 @ values**2) + (unit * o / 2) ** 2 + 1e-8
            # Hopper's products of e4m3 keep about 14 bits of a sum, which 32 more terms join at a time (DeepSeek-V3's report, 3.3.2).
            of_sums = q.abs() @ k.abs().transpose(-1, -2) * factor * (p.dim / 32 * 2**-14 if p.eight else 0.0)
            of_lse = 4e-3 + 4e-4 * size_of_lse + of_sums.masked_fill(hidden, 0.0).amax(-1)
        empty = float("-inf") if p.negative else float("inf")
        answers = {"o": (o.transpose(1, 2), of_o.transpose(1, 2)), "lse": (lse.masked_fill(~seen, empty), of_lse)}
        if p.gradients:
            answers |= self.exact_gradients(q, k, v, weights, o, lse, of_queries(self.d_o))
        return answers

    def exact_gradients(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        weights: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        d_o: torch.Tensor,
    ) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        p, unit, seen = self.p, torch.finfo(self.type).eps, lse.isfinite()
        d_lse = self.d_lse.double() if p.with_d_lse and p.leave_out != "d_lse" else torch.zeros_like(lse)
        d = (d_o * o).sum(-1) - d_lse.masked_fill(~seen, 0.0)
        of_o = unit * (o.abs() + weights @ v.abs()) + self.of_weights @ v.abs()
        of_d = (d_o.abs() * of_o).sum(-1) + 1e-5 * (1 + d.abs())
        d_p = d_o @ v.transpose(-1, -2)
        d_capped = d_p - d[..., None]
        d_scores = weights * d_capped
        of_d_scores = (
            unit * d_scores.abs() + weights * (of_d[..., None] + 1e-3 * unit * d_p.abs() + 1e-6) + 4e-4 * d_scores.abs()
        ) + self.of_weights * d_capped.abs()
        of_slope = 2.2 * OF_TANH * (1 - self.slope)
        of_d_scores, d_scores = of_d_scores * self.slope + d_scores.abs() * of_slope, d_scores * self.slope
        d_q, d_k = d_scores @ k * p.scale, d_scores.transpose(-1, -2) @ q * p.scale
        d_v = weights.transpose(-1, -2) @ d_o
        of_q = of_d_scores @ k.abs() * p.scale + unit * d_q.abs() + 1e-5
        of_k = of_d_scores.transpose(-1, -2) @ q.abs() * p.scale + unit * d_k.abs() + 1e-5
        of_v = (2 * unit * weights + self.of_weights).transpose(-1, -2) @ d_o.abs() + unit * d_v.abs() + 1e-5

        def keys(t: torch.Tensor) -> torch.Tensor:
            return t.unflatten(1, (p.heads_k, -1)).sum(2).transpose(1, 2)

        answers = {
            "dq": (d_q.transpose(1, 2), of_q.transpose(1, 2)),
            "dk": (keys(d_k), keys(of_k)),
            "dv": (keys(d_v), keys(of_v)),
        }
        if p.sink:
            share = torch.exp(self.sink.double()[None, :, None] - lse).masked_fill(~(seen & self.mask_q[:, None]), 0.0)
            answers["d_sink"] = (-(share * d).sum((0, 2)), (share * of_d).sum((0, 2)) + 1e-4)
        return answers

    def inside(self, name: str, right: torch.Tensor) -> torch.Tensor:
        if name == "d_sink":
            return torch.ones_like(right, dtype=torch.bool)
        if name == "lse":
            return self.mask_q[:, None].expand_as(right)
        return (self.mask_k if name in ("dk", "dv") else self.mask_q)[:, :, None, None].expand_as(right)

    def shares(self) -> dict[str, float]:
        """The largest error of each answer as a part of what it may be."""
        p, got, found = self.p, self.answers(), {}
        for name, (right, allowed) in self.exact().items():
            value, inside = got[name].double(), self.inside(name, right)
            error = torch.where(right.isinf(), torch.where(value == right, 0.0, NAN), (value - right).abs())
            part = (error / allowed).masked_fill(~inside, 0.0)
            found[name] = float(part.nan_to_num(nan=1e9, posinf=1e9).max()) if part.numel() else 0.0
            if p.fa3 and name == "o" and int(inside.sum()) > 4000:
                square = (error**2).masked_fill(~inside, 0.0).nan_to_num(nan=1e9).sum()
                mean = self.mean_square.transpose(1, 2).masked_fill(~inside, 0.0).sum()
                found["square"] = float(square / mean.clamp_min(1e-9)) / 2.5
        if p.new:
            same = all(torch.equal(bits(a), bits(b)) for a, b in zip(self.tensors[1:], (self.k, self.v), strict=True))
            found["cache"] = 0.0 if same else 1e9
        return found
