"""Problems over a KV cache: paged or not, with new keys, rotary and all else that mha_fwd_kvcache knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention import GUARD, Call, Guarded, Part, Problem
from packed import int32

from support.fa_abi import Flag, ForwardArgs

if TYPE_CHECKING:
    import torch
else:
    from torch_with_gpu import torch

MORE_IN_CACHE = 3


@dataclass(frozen=True)
class Cached(Problem):
    """A call over a cache of capacity seqlen_k; `lengths` are cache_seqlens, () for a full cache."""

    lengths: tuple[int, ...] = ()
    new: int = 0
    rotary: int = 0
    interleaved: bool = False
    indexed: bool = False
    leftpad: tuple[int, ...] = ()
    page_size: int = 0


class CacheCall(Call):
    """A problem over a cache with its buffers."""

    def make_buffers(self) -> None:
        p = self.problem
        generator = torch.Generator(device="cuda").manual_seed(p.seed)

        def shuffled(count: int, more: int) -> torch.Tensor:
            order = torch.randperm(count + more, generator=generator, device="cuda")
            return order[:count].to(torch.int32).contiguous()

        super().make_buffers()
        self.k_new, self.v_new = (Guarded(p, p.new, p.heads_k) for _ in range(2))
        if p.page_size:
            pages = p.seqlen_k // p.page_size
            cache = replace(p, batch=p.batch * pages + 2)
            self.k, self.v = (Guarded(cache, p.page_size, p.heads_k) for _ in range(2))
            self.lists["block_table"] = shuffled(p.batch * pages, 2).view(p.batch, pages)
        if p.indexed:
            cache = replace(p, batch=p.batch + MORE_IN_CACHE)
            self.k, self.v = (Guarded(cache, p.seqlen_k, p.heads_k) for _ in range(2))
            self.lists["cache_batch_idx"] = shuffled(p.batch, MORE_IN_CACHE)
        if p.lengths:
            self.lists["cache_seqlens"] = int32(p.lengths)
        if p.leftpad:
            self.lists["leftpad_k"] = int32(p.leftpad)
        for one in (self.k_new, self.v_new):
            one.fill(generator)
        if p.rotary:
            angle = torch.rand((p.seqlen_k + 16, p.rotary // 2), generator=generator, device="cuda") * 6.28
            self.cos, self.sin = angle.cos().to(p.torch_dtype), angle.sin().to(p.torch_dtype)

    def make_args(self) -> ForwardArgs:
        p = self.problem
        self.before = self.k.storage.clone(), self.v.storage.clone()
        args = super().make_args()
        args.page_size = p.page_size
        if p.new:
            args.seqlen_new = p.new
            args.k_new, args.v_new = self.k_new.describe(), self.v_new.describe()
        if p.rotary:
            args.rotary_cos, args.rotary_sin = self.cos.data_ptr(), self.sin.data_ptr()
            args.rotary_dim, args.rotary_seqlen = p.rotary, self.cos.shape[0]
            args.flags |= Flag.ROTARY_INTERLEAVED if p.interleaved else 0
        return args

    def where(self, i: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the indices in the first two dimensions of k and v of rows of sequence i."""
        p = self.problem
        if p.page_size:
            return self.lists["block_table"][i].long()[rows // p.page_size], rows % p.page_size
        slot = int(self.lists["cache_batch_idx"][i]) if p.indexed else i
        return torch.full_like(rows, slot), rows

    def turned(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Apply rotary embedding to (rows, heads, dim) at positions, in float, rounded as the kernels do."""
        p = self.problem
        if not p.rotary:
            return x
        cos, sin = (one[positions].float()[:, None, :] for one in (self.cos, self.sin))
        head, tail = x[..., : p.rotary].float(), x[..., p.rotary :]
        if p.interleaved:
            a, b = head[..., 0::2], head[..., 1::2]
        else:
            a, b = head.chunk(2, dim=-1)
        parts = a * cos - b * sin, a * sin + b * cos
        turned = torch.stack(parts, dim=-1).flatten(-2) if p.interleaved else torch.cat(parts, dim=-1)
        return torch.cat([turned.to(x.dtype), tail], dim=-1)

    @property
    def slack(self) -> float:
        """A rotated element may round the other way, which moves a score by as much as a plain one."""
        return 0.0 if not self.problem.rotary else 2e-3 if self.problem.dtype == "fp16" else 1e-2

    def parts(self) -> Iterator[Part]:
        """Each sequence with the cache as it should be by now, which is kept."""
        p = self.problem
        self.expected = [one.clone() for one in self.before]
        cache_k, cache_v = (
            one.view(p.torch_dtype).as_strided(self.k.shape, self.k.strides, GUARD) for one in self.expected
        )
        for i in range(p.batch):
            length = p.lengths[i] if p.lengths else p.seqlen_k
            q = self.q.tensor[i]
            if p.new:
                rows = torch.arange(length, length + p.new, device="cuda")
                cache_k[self.where(i, rows)] = self.turned(self.k_new.tensor[i], rows)
                cache_v[self.where(i, rows)] = self.v_new.tensor[i]
                steps = torch.arange(p.seqlen_q, device="cuda")
                moves = p.causal or p.left is not None or p.right is not None
                q = self.turned(q, length + (steps if moves else 0 * steps))
            used = torch.arange(p.leftpad[i] if p.leftpad else 0, length + p.new, device="cuda")
            k, v = cache_k[self.where(i, used)][None], cache_v[self.where(i, used)][None]
            own = slice(i, i + 1)
            yield Part(i, q[None], k, v, self.o.tensor[own], self.lse[own], self.slopes_of(i))

    def check(self, dropping: Any = None) -> None:
        """See also that what should have been appended was, and that nothing else in the cache changed."""
        super().check(dropping)
        p, (expected_k, expected_v) = self.problem, self.expected
        assert torch.equal(self.v.storage, expected_v), "v of the cache is wrong"
        if not p.rotary:
            assert torch.equal(self.k.storage, expected_k), "k of the cache is wrong"
            return
        changed = self.k.storage != expected_k
        near, right = (one[changed].view(p.torch_dtype).float() for one in (self.k.storage, expected_k))
        step = 2e-2 if p.dtype == "bf16" else 2e-3
        assert torch.allclose(near, right, rtol=step, atol=step), "k of the cache is wrong"
