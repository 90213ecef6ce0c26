"""Queries and keys in use, and chunks, as lists of sequences: numpy stands for torch, and attention is worked out by hand."""

import importlib
import random
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

np = pytest.importorskip("numpy")


class Array(np.ndarray):  # type: ignore[misc, name-defined]
    """What sequences.py asks of a tensor."""

    device = None

    def unsqueeze(self, dim: int) -> Any:
        return np.expand_dims(self, dim).view(Array)

    def minimum(self, other: Any) -> Any:
        return np.minimum(self, other)

    def clamp_min(self, least: int) -> Any:
        return np.maximum(self, least)

    def flatten(self, *dims: int) -> Any:
        return self.reshape(-1, *self.shape[2:]) if dims else self.reshape(-1)

    def dim(self) -> int:
        return self.ndim

    def new_zeros(self, count: int) -> Any:
        return np.zeros(count, self.dtype).view(Array)


def array(values: Any) -> Any:
    return np.array(values, dtype=np.int32).view(Array)


@pytest.fixture
def sequences(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, whose torch is numpy."""
    torch = ModuleType("torch")
    vars(torch).update(
        int32=np.int32,
        arange=lambda *ends, dtype, **_: np.arange(*ends, dtype=dtype).view(Array),
        cat=lambda arrays, dim=0: np.concatenate(arrays, dim).view(Array),
    )
    module = importlib.import_module("flash_attn_2_cuda.sequences")
    monkeypatch.setattr(module, "torch", torch)
    return module


def attention(q: Any, k: Any, v: Any, mask: dict[str, int], chunk: int = 0) -> Any:
    """Out of one sequence; zeros for what sees nothing."""
    row, key = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))[None]
    hidden = np.zeros((len(q), len(k)), bool)
    if mask["left"] >= 0:
        hidden |= key < row - mask["left"]
    if mask["right"] >= 0:
        hidden |= key > row + mask["right"]
    if chunk:
        hidden |= row // chunk != key // chunk
    weights = np.where(hidden, 0.0, np.exp(q @ k.T))
    return weights @ v / np.maximum(weights.sum(1, keepdims=True), 1e-30)


def test_the_parts_see_what_the_sequences_saw(sequences) -> None:
    for seed in range(400):
        compare(sequences, seed)


def compare(sequences: ModuleType, seed: int) -> None:
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    batch, is_packed = chance.choice((1, 2, 3)), chance.random() < 0.7
    of_q, of_k = ([chance.randrange(9) for _ in range(batch)] for _ in range(2))
    if not is_packed:
        of_q, of_k = [of_q[0] + 1] * batch, [of_k[0] + 1] * batch
    used_q, used_k = ([chance.randrange(n + 1) for n in of] if chance.random() < 0.6 else None for of in (of_q, of_k))
    chunk = chance.choice((0, 1, 2, 5, 20))
    mask = {"left": chance.choice((-1, 0, 2)), "right": chance.choice((-1, 0, 2))}
    q, k, v = (numbers.standard_normal((sum(of), 1, 3)).view(Array) for of in (of_q, of_k, of_k))
    ends_q, ends_k = (array([0, *np.cumsum(of)]) for of in (of_q, of_k))
    lengths = (ends_q, ends_k, None, max(of_q), max(of_k) + 3) if is_packed else (None,) * 5
    how = sequences.How(*lengths)._replace(seqused_k=None if used_k is None else array(used_k))
    given = (q, k, v) if is_packed else [t.reshape(batch, -1, 1, 3) for t in (q, k, v)]
    *packed, parts = sequences.in_parts(*given, how, chunk, None if used_q is None else array(used_q))
    assert [t.shape for t in packed] == [t.shape for t in (q, k, v)]
    out = np.full((sum(of_q), 3), np.nan)
    bounds = zip(pairwise(parts.cu_seqlens_q), pairwise(parts.cu_seqlens_k), strict=True)
    for (first_q, end_q), (first_k, end_k) in bounds:
        assert 0 <= end_q - first_q <= parts.max_seqlen_q
        assert 0 <= end_k - first_k <= parts.max_seqlen_k
        keys = slice(first_k, end_k)
        out[first_q:end_q] = attention(q[first_q:end_q, 0], k[keys, 0], v[keys, 0], mask)
    for i in range(batch):
        rows, keys = (of[i] if used is None else used[i] for of, used in ((of_q, used_q), (of_k, used_k)))
        at, of_keys = ends_q[i], slice(ends_k[i], ends_k[i] + keys)
        exact = attention(q[at : at + rows, 0], k[of_keys, 0], v[of_keys, 0], mask, chunk)
        assert np.allclose(out[at : at + rows], exact)
        assert not out[at + rows : ends_q[i + 1]].any()
