"""Attention problems: their tensors, fa_fwd over them, and what the result should be."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from support.fa_abi import BackwardArgs, Dtype, Flag, ForwardArgs, Library, Status, Tensor

if TYPE_CHECKING:
    import torch
else:
    from torch_with_gpu import torch

Args = TypeVar("Args", ForwardArgs, BackwardArgs)

GUARD = 1024  # elements before and after every tensor: whole pages of what must not be touched
POISON_16 = 0x7FFF  # not a number, both as fp16 and as bf16
POISON_32 = 0x7FC0DEAD  # not a number, as float


@dataclass(frozen=True)
class Problem:
    """One call of fa_fwd. None is an unbounded window; alibi is "", "h" or "bh"."""

    dtype: str = "bf16"
    batch: int = 2
    seqlen_q: int = 128
    seqlen_k: int = 128
    heads_q: int = 4
    heads_k: int = 4
    head_dim: int = 64
    causal: bool = False
    left: int | None = None
    right: int | None = None
    softcap: float = 0.0
    alibi: str = ""
    scale: float = 0.0
    dropout: float = 0.0
    splits: int = 1
    layout: str = "bshd"
    seed: int = 0

    def __str__(self) -> str:
        default = type(self)()
        named = {name: value for name, value in vars(self).items() if value != getattr(default, name)}
        return ",".join(f"{name}={value}" for name, value in named.items()) or "default"

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float16 if self.dtype == "fp16" else torch.bfloat16


class Guarded:
    """A (batch, rows, heads, dim) tensor amid poison: in the gaps of its strides and on both sides."""

    def __init__(self, problem: Problem, rows: int, heads: int) -> None:
        batch, dim = problem.batch, problem.head_dim
        strides = {
            "bshd": (rows * heads * dim, heads * dim, dim),
            "bhsd": (rows * heads * dim, dim, rows * dim),
            "sbhd": (heads * dim, batch * heads * dim, dim),
            "gaps": (rows * (heads * (dim + 8) + 24) + 40, heads * (dim + 8) + 24, dim + 8),
        }[problem.layout]
        extents = (batch, rows, heads)
        span = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)) + dim
        self.storage = torch.full((max(span, 0) + 2 * GUARD,), POISON_16, dtype=torch.int16, device="cuda")
        self.shape, self.strides = (batch, rows, heads, dim), (*strides, 1)
        self.tensor = self.storage.view(problem.torch_dtype).as_strided(self.shape, self.strides, GUARD)

    def fill(self, generator: torch.Generator, factor: float = 1.0) -> None:
        values = torch.randn(self.shape, generator=generator, device="cuda", dtype=torch.float32)
        self.tensor.copy_(values * factor)

    def describe(self) -> Tensor:
        batch, row, head, _ = self.strides
        return Tensor(self.storage.data_ptr() + 2 * GUARD, batch, row, head)

    def assert_poison_is_untouched(self) -> None:
        inside = torch.zeros_like(self.storage, dtype=torch.bool)
        inside.as_strided(self.shape, self.strides, GUARD).fill_(True)
        touched = int((self.storage[~inside] != POISON_16).sum())
        assert touched == 0, f"{touched} elements outside the output were written"


@dataclass(frozen=True)
class Part:
    """What attends to itself, and what the call wrote for it. ``index`` is None where that is the whole problem."""

    index: int | None
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    lse: torch.Tensor
    slopes: torch.Tensor | None


class Call:
    """A problem with its buffers, ready to run: here a dense one."""

    slack = 0.0
    """What o may be off, apart from twice the error of the plain computation."""

    def __init__(self, problem: Problem, library: Library, device: int = 0) -> None:
        self.problem, self.library, self.device = problem, library, device
        self.alibi: torch.Tensor | None = None
        self.lists: dict[str, torch.Tensor] = {}
        self.lse_shape: tuple[int, ...] = (problem.batch, problem.heads_q, problem.seqlen_q)
        self.make_buffers()
        self.lse_storage = poisoned_floats(math.prod(self.lse_shape))
        self.refill(problem.seed)
        self.args = self.make_args()
        self.add_workspace()

    def make_buffers(self) -> None:
        """Make q, k, v, o, the vectors by the names of their fields, and what else the arguments name."""
        p = self.problem
        self.q, self.o = (Guarded(p, p.seqlen_q, p.heads_q) for _ in range(2))
        self.k, self.v = (Guarded(p, p.seqlen_k, p.heads_k) for _ in range(2))

    def refill(self, seed: int) -> None:
        """Give the inputs new values, in place."""
        p = self.problem
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self.q.fill(generator, p.softcap or 1.0)  # so that the cap matters, as upstream's tests do
        self.k.fill(generator)
        self.v.fill(generator)
        if p.alibi:
            shape = (p.heads_q,) if p.alibi == "h" else (p.batch, p.heads_q)
            slopes = torch.rand(shape, generator=generator, device="cuda") * 0.3
            if self.alibi is None:
                self.alibi = slopes
            self.alibi.copy_(slopes)

    def make_args(self) -> ForwardArgs:
        """Sizes, numbers, tensors and vectors."""
        args = common_args(ForwardArgs, self.problem, self.device)
        args.num_splits = self.problem.splits
        args.q, args.k, args.v, args.o = (one.describe() for one in (self.q, self.k, self.v, self.o))
        args.lse = self.lse_storage.data_ptr() + 4 * GUARD
        for name, values in self.lists.items():
            setattr(args, name, values.data_ptr())
            if name == "block_table":
                args.block_table_stride = values.stride(0)
        set_alibi(args, self.alibi)
        return args

    def add_workspace(self) -> None:
        self.workspace = add_workspace(self.library, self.args)

    def poison(self) -> None:
        self.o.storage.fill_(POISON_16)
        self.lse_storage.fill_(POISON_32)

    def launch(self) -> None:
        """Enqueue on torch's current stream."""
        self.args.stream = torch.cuda.current_stream().cuda_stream
        answer = self.library.fwd(self.args)
        assert answer.status is Status.OK, answer

    @property
    def lse(self) -> torch.Tensor:
        return self.lse_storage[GUARD : self.lse_storage.numel() - GUARD].view(torch.float32).view(self.lse_shape)

    def slopes_of(self, i: int | None = None) -> torch.Tensor | None:
        slopes = None if self.alibi is None else self.alibi.expand(self.problem.batch, self.problem.heads_q)
        return slopes if slopes is None or i is None else slopes[i : i + 1]

    def parts(self) -> Iterator[Part]:
        """What attends to itself."""
        yield Part(None, *(one.tensor for one in (self.q, self.k, self.v, self.o)), self.lse, self.slopes_of())

    def check(self, dropping: Any = None) -> None:
        """Hold the result against float64, with upstream's bound; and see that nothing else was written."""
        torch.cuda.synchronize()
        p, errors, bounds = self.problem, [0.0], [1e-5]
        for part in self.parts():
            kept = dropping and dropping.kept(part.q.shape[1], part.k.shape[1], part.index)

            def attended(dtype: torch.dtype, first: str = "k", part: Part = part, kept: Any = kept) -> Any:
                return attend(p, part.q, part.k, part.v, dtype, scale_first=first, slopes=part.slopes, kept=kept)

            exact, exact_lse = attended(torch.float64)
            assert not part.o.isnan().any(), "o holds NaN: not written, or read from outside the inputs"
            errors.append(largest(part.o.double() - exact))
            # The largest of a few thousand rounding errors is a matter of luck, for the plain computation
            # too: both of its orders count.
            plain = (attended(p.torch_dtype, first)[0] for first in ("k", "q"))
            bounds += [2 * largest(o.double() - exact) + 1e-5 for o in plain]
            check_lse(p, part.lse, exact_lse)
        assert max(errors) <= max(bounds) + self.slack, f"o: error {max(errors):.3g} over {max(bounds):.3g}"
        self.o.assert_poison_is_untouched()
        assert_guards_are_untouched(self.lse_storage, self.workspace, self.args.workspace_bytes)


def common_args(kind: type[Args], p: Problem, device: int) -> Args:
    """Arguments of either pass: sizes, flags and numbers."""
    flags = Flag.CAUSAL if p.causal else Flag(0)
    flags |= Flag.WINDOW_LEFT if p.left is not None else Flag(0)
    flags |= Flag.WINDOW_RIGHT if p.right is not None else Flag(0)
    return kind(
        size=ctypes.sizeof(kind),
        flags=flags,
        device=device,
        dtype=Dtype.FP16 if p.dtype == "fp16" else Dtype.BF16,
        batch=p.batch,
        seqlen_q=p.seqlen_q,
        seqlen_k=p.seqlen_k,
        heads_q=p.heads_q,
        heads_k=p.heads_k,
        head_dim=p.head_dim,
        scale=p.scale,
        softcap=p.softcap,
        dropout=p.dropout,
        window_left=p.left or 0,
        window_right=p.right or 0,
    )


def set_alibi(args: Args, slopes: torch.Tensor | None) -> None:
    if slopes is not None:
        args.alibi_slopes = slopes.data_ptr()
        args.alibi_batch_stride = slopes.stride(0) if slopes.dim() == 2 else 0


def add_workspace(library: Library, args: Args) -> torch.Tensor | None:
    """Give a call poison of the size that it asks for, with a guard behind it."""
    if isinstance(args, ForwardArgs):
        answer, count, _ = library.fwd_workspace(args)
    else:
        answer, count = library.bwd_workspace(args)
    if answer.status is not Status.OK or not count:
        return None
    workspace = torch.full((count // 2 + GUARD,), POISON_16, dtype=torch.int16, device="cuda")
    args.workspace, args.workspace_bytes = workspace.data_ptr(), count
    return workspace


def poisoned_floats(count: int) -> torch.Tensor:
    """Make poison of the size of float, with guards around `count` of them."""
    return torch.full((count + 2 * GUARD,), POISON_32, dtype=torch.int32, device="cuda")


def assert_guards_are_untouched(floats: torch.Tensor, workspace: torch.Tensor | None, used: int) -> None:
    outside = torch.cat([floats[:GUARD], floats[-GUARD:]])
    assert bool((outside == POISON_32).all()), "written outside lse or softmax_d"
    if workspace is not None:
        assert bool((workspace[used // 2 :] == POISON_16).all()), "written outside the workspace"


def check_lse(p: Problem, lse: torch.Tensor, exact: torch.Tensor) -> None:
    seen = exact.isfinite()
    assert bool((lse[~seen] == float("inf")).all()), "lse of rows without keys is not +inf"
    error = largest((lse.double() - exact)[seen])
    # float over scores as large as this, and tanh.approx (relative error 2^-11) with a softcap
    bound = 2e-4 + 2e-6 * largest(exact[seen]) + 2e-3 * p.softcap
    assert error <= bound, f"lse: error {error:.3g} over {bound:.3g}"


def largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def attend(
    p: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype,
    *,
    scale_first: str = "k",
    slopes: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend as upstream's attention_ref does, which scales q or k. Lengths are those of the tensors.

    q is (b, t, h, d), k and v are (b, s, hk, d), slopes (b, h), kept (b, h, t, s): what is not dropped. Returns o and
    lse (b, h, t); the lse of a row without keys is -inf.
    """
    group = p.heads_q // p.heads_k
    q, k, v = (one.to(dtype) for one in (q, k, v))
    k = k.repeat_interleave(group, dim=2)
    v = v.repeat_interleave(group, dim=2)
    scale = p.scale or p.head_dim**-0.5
    q, k = (q, k * scale) if scale_first == "k" else (q * scale, k)
    scores = torch.einsum("bthd,bshd->bhts", q, k)
    if p.softcap:
        scores = torch.tanh(scores / p.softcap) * p.softcap
    length_q, length_k = q.shape[1], k.shape[1]
    row = torch.arange(length_q, device=q.device)[:, None] + length_k - length_q
    column = torch.arange(length_k, device=q.device)[None, :]
    right = 0 if p.causal else p.right
    shift = torch.zeros((), dtype=torch.float64, device=q.device)
    if slopes is not None:
        slopes = slopes.double()[:, :, None, None]
        scores = scores + (-slopes * (row - column).abs()).to(dtype)
        # the units are chosen for the longest sequences, those of the problem
        if right == 0 and (p.left is None or p.left >= p.seqlen_k):
            # the kernels for causal attention add slope * column; each row of lse moves by as much
            shift = (slopes * row)[..., 0]
    hidden = torch.zeros(length_q, length_k, dtype=torch.bool, device=q.device)
    if p.left is not None:
        hidden = hidden | (column < row - p.left)
    if right is not None:
        hidden = hidden | (column > row + right)
    lse = torch.logsumexp(scores.detach().masked_fill(hidden, float("-inf")).double(), dim=-1) + shift
    blind = hidden.all(dim=-1, keepdim=True)  # softmax over nothing would be NaN, and so its gradient
    scores = scores.masked_fill(hidden & ~blind, float("-inf"))
    weights = torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)
    if kept is not None:
        weights = (weights / (1 - p.dropout)).masked_fill(~kept, 0.0)
    return torch.einsum("bhts,bshd->bthd", weights, v), lse


def variants(problem: Problem, **lists: tuple[object, ...]) -> list[Problem]:
    """`problem` with every combination of the given values."""
    found = [problem]
    for name, values in lists.items():
        found = [replace(one, **{name: value}) for one in found for value in values]
    return found


def random_fields(rng: random.Random, reach: int) -> dict[str, Any]:
    """Fields of any problem; windows end within so many keys."""
    heads_k, window = rng.choice([1, 2, 3]), rng.random() < 0.3
    return {
        "dtype": rng.choice(["fp16", "bf16"]),
        "heads_q": heads_k * rng.choice([1, 1, 2, 5]),
        "heads_k": heads_k,
        "head_dim": 8 * rng.randint(1, 32),
        "causal": rng.random() < 0.5,
        "left": rng.randint(0, reach) if window else None,
        "right": rng.choice([None, rng.randint(0, reach)]) if window else None,
        "softcap": rng.choice([0.0, 0.0, 0.0, 15.0]),
        "alibi": rng.choice(["", "", "", "h", "bh"]),
        "layout": rng.choice(["bshd", "bhsd", "gaps"]),
    }


def cases(problems: list[Problem] | dict[str, list[Problem]]) -> pytest.MarkDecorator:
    """Parametrize over problems, each once; in a table, each once a row, with the row's name before it."""
    table = problems if isinstance(problems, dict) else {"": problems}
    named = [(name, problem) for name, row in table.items() for problem in dict.fromkeys(row)]
    ids = [f"{name}: {problem}" if name else str(problem) for name, problem in named]
    return pytest.mark.parametrize("problem", [problem for _, problem in named], ids=ids)
