"""fa_bwd after a forward call, dense or packed, and what its gradients should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attention import (
    GUARD,
    POISON_16,
    POISON_32,
    Call,
    Guarded,
    add_workspace,
    assert_guards_are_untouched,
    attend,
    common_args,
    largest,
    poisoned_floats,
    set_alibi,
)
from dropping import Dropping
from packed import Packed, PackedCall, starts

from support.fa_abi import BackwardArgs, Flag, Status

if TYPE_CHECKING:
    import torch
else:
    from torch_with_gpu import torch

NAMES = ("dq", "dk", "dv")


class Backward:
    """The backward pass of a call. Forward runs first, on the stream that is current then."""

    def __init__(self, call: Call | PackedCall, *, deterministic: bool = False) -> None:
        p = call.problem
        self.call, self.problem, self.library = call, p, call.library
        self.is_packed = isinstance(call, PackedCall)
        self.dropping = Dropping(call) if p.dropout else None
        if isinstance(call, PackedCall):
            rows_q, rows_k, shape = call.total_q, call.total_k, replace(p, batch=1)
            padded = p.heads_q * (call.total_q + 128 * p.batch)
        else:
            rows_q, rows_k, shape = p.seqlen_q, p.seqlen_k, p
            padded = p.batch * p.heads_q * (-(-p.seqlen_q // 128) * 128)
        self.d_o, self.dq = Guarded(shape, rows_q, p.heads_q), Guarded(shape, rows_q, p.heads_q)
        self.dk, self.dv = Guarded(shape, rows_k, p.heads_k), Guarded(shape, rows_k, p.heads_k)
        self.d_o.fill(torch.Generator(device="cuda").manual_seed(p.seed + 77))
        self.softmax_d = poisoned_floats(padded)
        self.args = self.make_args(deterministic=deterministic)
        self.workspace = add_workspace(self.library, self.args)

    def make_args(self, *, deterministic: bool) -> BackwardArgs:
        call, forward = self.call, self.call.args
        args = common_args(BackwardArgs, self.problem, call.device)
        args.flags |= Flag.DETERMINISTIC if deterministic else 0
        args.total_q, args.total_k = forward.total_q, forward.total_k
        for name in ("q", "k", "v", "o"):
            setattr(args, name, getattr(call, name).describe())
        for name in ("d_o", *NAMES):
            setattr(args, name, getattr(self, name).describe())
        args.lse = forward.lse
        args.softmax_d = self.softmax_d.data_ptr() + 4 * GUARD
        args.cu_seqlens_q, args.cu_seqlens_k = forward.cu_seqlens_q, forward.cu_seqlens_k
        args.rng_state = forward.rng_state
        set_alibi(args, call.alibi)
        return args

    def poison(self) -> None:
        for name in NAMES:
            getattr(self, name).storage.fill_(POISON_16)
        self.softmax_d.fill_(POISON_32)
        if self.workspace is not None:
            self.workspace.fill_(POISON_16)

    def launch(self) -> None:
        self.args.stream = torch.cuda.current_stream().cuda_stream
        answer = self.library.bwd(self.args)
        assert answer.status is Status.OK, answer

    def bits(self) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(self, name).storage.clone() for name in NAMES)

    def sequences(self) -> Iterator[tuple[slice, slice, torch.Tensor | None, torch.Tensor | None]]:
        """Rows of q, rows of k, slopes and what was kept, of what attends to itself."""
        call, p = self.call, self.problem
        if not isinstance(call, PackedCall):
            yield slice(None), slice(None), call.slopes_of(), self.dropping and self.dropping.kept()
            return
        for i, (at_q, at_k, t, s) in enumerate(
            zip(starts(p.lengths_q), starts(p.lengths_k), p.lengths_q, p.lengths_k, strict=False)
        ):
            kept = self.dropping and self.dropping.kept(t, s, i)
            yield slice(at_q, at_q + t), slice(at_k, at_k + s), call.slopes_of(i), kept

    def reference(self, dtype: torch.dtype, scale_first: str = "k") -> tuple[torch.Tensor, ...]:
        """Compute dq, dk and dv by torch's autograd in a dtype; rows of no sequence get 0."""
        call = self.call
        leaves = [one.tensor.detach().to(dtype).requires_grad_() for one in (call.q, call.k, call.v)]
        q, k, v = leaves
        total = torch.zeros((), dtype=dtype, device=q.device)
        for rows_q, rows_k, slopes, kept in self.sequences():
            parts = q[:, rows_q], k[:, rows_k], v[:, rows_k]
            o, _ = attend(self.problem, *parts, dtype, scale_first=scale_first, slopes=slopes, kept=kept)
            total = total + (o * self.d_o.tensor[:, rows_q].to(dtype)).sum()
        return torch.autograd.grad(total, leaves)

    def written(self, name: str) -> torch.Tensor:
        """Return the rows of a gradient that belong to sequences."""
        tensor = getattr(self, name).tensor
        p = self.problem
        if isinstance(p, Packed):
            return tensor[:, : sum(p.lengths_q if name == "dq" else p.lengths_k)]
        return tensor

    def rounding_of_o(self) -> float:
        """How far dq may be off because softmax_d, the sum of do * o, is made from a rounded o.

        The plain computation has no such error. It matters where a row sees one key and all else cancels.
        """
        p = self.problem
        scale = p.scale or p.head_dim**-0.5
        return self.rounding_of_d() * largest(self.call.k.tensor.double().nan_to_num()) * scale / (1 - p.dropout)

    def rounding_of_d(self) -> float:
        """How far softmax_d of a rounded o may be off what the probabilities and their gradients give, as some kernels do."""
        sums = (self.d_o.tensor.double() * self.call.o.tensor.double()).abs().nan_to_num().sum(-1)
        return torch.finfo(self.problem.torch_dtype).eps / 2 * largest(sums)

    def check(self) -> None:
        """Hold the gradients against float64, with upstream's bound; and see that nothing else was written."""
        torch.cuda.synchronize()
        exact = self.reference(torch.float64)
        plain = [self.reference(self.problem.torch_dtype, first) for first in ("k", "q")]
        for i, name in enumerate(NAMES):
            got = self.written(name)
            rows = got.shape[1]
            assert not got.isnan().any(), f"{name} holds NaN: not written, or read from outside the inputs"
            error = largest(got.double() - exact[i][:, :rows])
            slack = 1e-4 + (self.rounding_of_o() if name == "dq" else 0.0)
            bounds = [3 * largest(one[i].double() - exact[i]) + slack for one in plain]
            assert error <= max(bounds), f"{name}: error {error:.3g} over {bounds}"
            getattr(self, name).assert_poison_is_untouched()
        if isinstance(self.problem, Packed) and not self.empty():
            spare = self.dq.tensor[:, sum(self.problem.lengths_q) :].contiguous().view(torch.int16)
            assert bool((spare == POISON_16).all()), "dq of rows of no sequence was written"
        self.check_softmax_d()
        assert_guards_are_untouched(self.softmax_d, self.workspace, self.args.workspace_bytes)

    def empty(self) -> bool:
        return self.problem.seqlen_q == 0 or self.problem.seqlen_k == 0

    def check_softmax_d(self) -> None:
        """Hold softmax_d against sum(d_o * o)."""
        p, call = self.problem, self.call
        if self.problem.seqlen_q == 0:
            return
        inside = self.softmax_d[GUARD : self.softmax_d.numel() - GUARD].view(torch.float32)
        exact = (self.d_o.tensor.double() * call.o.tensor.double()).sum(-1).transpose(1, 2)  # (b, h, rows)
        exact = exact * (1 - p.dropout)  # which the kernels put back in at the end
        if isinstance(call, PackedCall):
            inside = inside.view(p.heads_q, -1)
            at = 0
            for i, length in enumerate(p.lengths_q):
                got = inside[:, at + 128 * i : at + 128 * i + length].double()
                bound = 1e-3 * max(1.0, largest(exact[0, :, : at + length])) + self.rounding_of_d()
                assert largest(got - exact[0, :, at : at + length]) <= bound
                at += length
        else:
            got = inside.view(p.batch, p.heads_q, -1)[..., : p.seqlen_q].double()
            assert largest(got - exact) <= 1e-3 * max(1.0, largest(exact)) + self.rounding_of_d()
