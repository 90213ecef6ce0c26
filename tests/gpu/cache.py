"""Problems over a KV cache: paged or not, with new keys, rotary and all else that mha_fwd_kvcache knows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention import GUARD, ForwardCall, Guarded, Problem, add_workspace, attend, check_lse, largest, poisoned_floats
from packed import int32

from support.fa_abi import Flag, ForwardArgs, Library

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


@dataclass
class CacheCall(ForwardCall):
    """A problem with its buffers, ready to run."""

    problem: Cached
    library: Library
    device: int = 0
    workspace: torch.Tensor | None = field(init=False, default=None)
    lists: dict[str, torch.Tensor] = field(init=False, default_factory=dict)
    alibi: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        p = self.problem
        generator = torch.Generator(device="cuda").manual_seed(p.seed)
        self.q, self.o = Guarded(p, p.seqlen_q, p.heads_q), Guarded(p, p.seqlen_q, p.heads_q)
        self.k_new, self.v_new = (Guarded(p, p.new, p.heads_k) for _ in range(2))
        if p.page_size:
            pages = p.seqlen_k // p.page_size
            cache = replace(p, batch=p.batch * pages + 2)
            self.k, self.v = (Guarded(cache, p.page_size, p.heads_k) for _ in range(2))
            shuffled = torch.randperm(p.batch * pages + 2, generator=generator, device="cuda")
            self.lists["block_table"] = shuffled[: p.batch * pages].view(p.batch, pages).to(torch.int32).contiguous()
        else:
            cache = replace(p, batch=p.batch + MORE_IN_CACHE * p.indexed)
            self.k, self.v = (Guarded(cache, p.seqlen_k, p.heads_k) for _ in range(2))
        if p.indexed:
            shuffled = torch.randperm(p.batch + MORE_IN_CACHE, generator=generator, device="cuda")
            self.lists["cache_batch_idx"] = shuffled[: p.batch].to(torch.int32).contiguous()
        if p.lengths:
            self.lists["cache_seqlens"] = int32(list(p.lengths))
        if p.leftpad:
            self.lists["leftpad_k"] = int32(list(p.leftpad))
        for one in (self.q, self.k, self.v, self.k_new, self.v_new):
            one.fill(generator, (p.softcap or 1.0) if one is self.q else 1.0)
        if p.alibi:
            shape = (p.heads_q,) if p.alibi == "h" else (p.batch, p.heads_q)
            self.alibi = torch.rand(shape, generator=generator, device="cuda") * 0.3
        if p.rotary:
            angle = torch.rand((p.seqlen_k + 16, p.rotary // 2), generator=generator, device="cuda") * 6.28
            self.cos, self.sin = angle.cos().to(p.torch_dtype), angle.sin().to(p.torch_dtype)
        self.before = self.k.storage.clone(), self.v.storage.clone()
        self.lse_storage = poisoned_floats(p.batch * p.heads_q * p.seqlen_q)
        self.args = self.make_args()
        self.workspace = add_workspace(self.library, self.args)

    def make_args(self) -> ForwardArgs:
        p = self.problem
        args = self.tensor_args(self.lists)
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

    def check(self) -> None:
        """Hold o against float64 and the cache against what should have been appended."""
        torch.cuda.synchronize()
        p = self.problem
        lse = self.lse_storage[GUARD : self.lse_storage.numel() - GUARD].view(torch.float32)
        lse = lse.view(p.batch, p.heads_q, p.seqlen_q)
        expected_k, expected_v = (one.clone() for one in self.before)
        strides, shape = self.k.strides, self.k.shape
        cache_k, cache_v = (
            one.view(p.torch_dtype).as_strided(shape, strides, GUARD) for one in (expected_k, expected_v)
        )
        errors, bounds = [0.0], [1e-5]
        assert not self.o.tensor.isnan().any(), "o holds NaN: not written, or read from outside the inputs"
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
            slopes = None if self.alibi is None else self.alibi.expand(p.batch, -1)[i : i + 1]
            exact, exact_lse = attend(p, q[None], k, v, torch.float64, slopes=slopes)
            errors.append(largest(self.o.tensor[i : i + 1].double() - exact))
            for first in ("k", "q"):
                plain, _ = attend(p, q[None], k, v, p.torch_dtype, scale_first=first, slopes=slopes)
                bounds.append(2 * largest(plain.double() - exact) + 1e-5)
            check_lse(p, lse[i : i + 1], exact_lse)
        # a rotated element may round the other way, which moves a score by as much as a plain one
        slack = 2e-3 if p.rotary and p.dtype == "fp16" else 1e-2 if p.rotary else 0.0
        assert max(errors) <= max(bounds) + slack, f"o: error {max(errors):.3g} over {max(bounds):.3g}"
        self.check_cache(expected_k, expected_v)
        self.assert_nothing_else_was_written()

    def check_cache(self, expected_k: torch.Tensor, expected_v: torch.Tensor) -> None:
        """See that what should have been appended was, and that nothing else changed."""
        p = self.problem
        assert torch.equal(self.v.storage, expected_v), "v of the cache is wrong"
        if not p.rotary:
            assert torch.equal(self.k.storage, expected_k), "k of the cache is wrong"
            return
        changed = self.k.storage != expected_k
        near, right = (one[changed].view(p.torch_dtype).float() for one in (self.k.storage, expected_k))
        step = 2e-2 if p.dtype == "bf16" else 2e-3
        assert torch.allclose(near, right, rtol=step, atol=step), "k of the cache is wrong"
