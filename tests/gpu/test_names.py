"""Queries and keys in use, and chunks, by the functions that flashdepot's small wheels install: compared with float64, with gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest
from torch_with_gpu import torch

interface = pytest.importorskip("flash_attn_interface", reason="the wheel of --names flash-attn-3 is not installed")

DIM, HEADS, HEADS_K = 64, 4, 2


class Sequences:
    """Packed sequences, of each of which some queries and keys are in use, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        batch = chance.choice((1, 2, 5))
        self.of_q, self.of_k = ([chance.choice((0, 1, 40, 130, 300)) for _ in range(batch)] for _ in range(2))
        self.used_q, self.used_k = ([chance.randrange(n + 1) for n in of] for of in (self.of_q, self.of_k))
        self.causal = chance.random() < 0.5
        self.window = chance.choice(((-1, -1), (-1, -1), (20, 0), (20, 30)))
        self.chunk = chance.choice((0, 0, 1, 50, 128, 1000))
        source = torch.Generator("cuda").manual_seed(seed)
        shapes = ((sum(self.of_q), HEADS), (sum(self.of_k), HEADS_K), (sum(self.of_k), HEADS_K))
        self.qkv = [
            torch.randn(*shape, DIM, generator=source, device="cuda").bfloat16().requires_grad_() for shape in shapes
        ]
        self.d_out = torch.randn(sum(self.of_q), HEADS, DIM, generator=source, device="cuda")

    def lengths(self) -> dict[str, Any]:
        def ends(lengths: list[int]) -> torch.Tensor:
            return torch.tensor([0, *lengths], device="cuda").cumsum(0, dtype=torch.int32)

        return {
            "cu_seqlens_q": ends(self.of_q),
            "cu_seqlens_k": ends(self.of_k),
            "max_seqlen_q": max(self.of_q),
            "max_seqlen_k": max(self.of_k),
            "seqused_q": torch.tensor(self.used_q, dtype=torch.int32, device="cuda"),
            "seqused_k": torch.tensor(self.used_k, dtype=torch.int32, device="cuda"),
        }

    def hidden(self, rows: int, keys: int, *, chunk: int) -> torch.Tensor:
        row = torch.arange(rows, device="cuda")[:, None] + keys - rows
        key = torch.arange(keys, device="cuda")[None]
        left, right = self.window[0], 0 if self.causal else self.window[1]
        hidden = torch.zeros(rows, keys, dtype=torch.bool, device="cuda")
        if left >= 0:
            hidden |= key < row - left
        if right >= 0:
            hidden |= key > row + right
        if chunk:
            hidden |= row.div(chunk, rounding_mode="floor") != key.div(chunk, rounding_mode="floor")
        return hidden

    def exact(self, qkv: list[torch.Tensor], *, chunk: int) -> torch.Tensor:
        """Out, with zeros for queries that see nothing or are not in use."""
        parts = []
        lengths = (self.of_q, self.of_k, self.used_q, self.used_k)
        at_q = at_k = 0
        for of_q, of_k, rows, keys in zip(*lengths, strict=True):
            q, k, v = qkv[0][at_q : at_q + rows], qkv[1][at_k : at_k + keys], qkv[2][at_k : at_k + keys]
            k, v = (t.repeat_interleave(HEADS // HEADS_K, 1) for t in (k, v))
            hidden = self.hidden(rows, keys, chunk=chunk)
            scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
            weights = (
                scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(hidden.all(-1)[None, :, None], 0.0)
            )
            parts += [torch.einsum("hqk,khd->qhd", weights, v), q.new_zeros(of_q - rows, HEADS, DIM)]
            at_q, at_k = at_q + of_q, at_k + of_k
        return torch.cat(parts)

    def compare(self, out: torch.Tensor, *, chunk: int) -> None:
        inputs = [t.detach().double().requires_grad_() for t in self.qkv]
        expected = self.exact(inputs, chunk=chunk)
        assert float((out.detach().double() - expected.detach()).abs().max()) < 3e-2
        found = torch.autograd.grad((out.double() * self.d_out).sum(), self.qkv)
        gradients = torch.autograd.grad((expected * self.d_out).sum(), inputs)
        for name, ours, theirs in zip("qkv", found, gradients, strict=True):
            allowed = 0.02 * float(theirs.abs().max()) + 1e-2
            assert float((ours.double() - theirs).abs().max()) < allowed, name


@pytest.mark.parametrize("seed", range(40))
def test_queries_and_keys_in_use_and_chunks_agree_with_float64(seed: int) -> None:
    given = Sequences(seed)
    if not all(t.numel() for t in given.qkv):
        pytest.skip("nothing was drawn")
    mask = {"causal": given.causal, "window_size": given.window, "attention_chunk": given.chunk}
    out = interface.flash_attn_varlen_func(*given.qkv, **given.lengths(), **mask)
    given.compare(out, chunk=given.chunk)


@pytest.mark.parametrize("seed", range(40, 60))
def test_flash_attn_cute_has_queries_and_keys_in_use(seed: int) -> None:
    cute = pytest.importorskip("flash_attn.cute", reason="the wheel of --names flash-attn-4 is not installed")
    given = Sequences(seed)
    if not all(t.numel() for t in given.qkv):
        pytest.skip("nothing was drawn")
    window = tuple(None if end < 0 else end for end in given.window)
    out, _ = cute.flash_attn_varlen_func(*given.qkv, **given.lengths(), causal=given.causal, window_size=window)
    given.compare(out, chunk=0)
