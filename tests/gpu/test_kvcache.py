"""fa_fwd over a KV cache: paged and not, growing, rotated, padded and indexed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from attention import cases, random_fields, variants
from cache import Cached
from torch_with_gpu import torch

PLAIN = Cached(batch=3, seqlen_q=5, seqlen_k=512, heads_q=6, heads_k=3, lengths=(300, 17, 480), splits=0)
DECODE = replace(PLAIN, seqlen_q=1, heads_q=8, heads_k=2)


RIGHT = {
    "lengths of each sequence": variants(
        PLAIN, head_dim=(64, 72, 128, 256), causal=(False, True), dtype=("fp16", "bf16")
    )
    + variants(DECODE, head_dim=(64, 128), splits=(0, 1, 3))
    + [replace(PLAIN, lengths=(0, 512, 1)), replace(DECODE, lengths=(0, 512, 1)), replace(PLAIN, lengths=())],
    "new keys are appended and seen": variants(PLAIN, new=(1, 5, 32), causal=(False, True), head_dim=(64, 128))
    + variants(DECODE, new=(1, 7), splits=(0, 1, 4), head_dim=(64, 80))
    + variants(replace(PLAIN, layout="gaps"), new=(5,), head_dim=(64, 72))
    + [replace(PLAIN, new=32, lengths=(0, 255, 480)), replace(PLAIN, new=300, lengths=(0, 100, 212), seqlen_q=300)],
    "rotary embedding": variants(
        replace(PLAIN, new=5),
        rotary=(16, 32, 64),
        interleaved=(False, True),
        causal=(False, True),
        dtype=("fp16", "bf16"),
    )
    + variants(replace(DECODE, new=1, head_dim=128), rotary=(128, 48), interleaved=(False, True), splits=(0, 1, 3))
    + variants(replace(PLAIN, new=5, rotary=32), left=(100,), interleaved=(False, True))
    + variants(replace(PLAIN, new=5, rotary=32, leftpad=(7, 0, 100)), causal=(False, True), interleaved=(False, True)),
    "pages": variants(
        replace(PLAIN, page_size=256), new=(0, 5), causal=(False, True), head_dim=(64, 128), splits=(0, 1, 3)
    )
    + variants(replace(DECODE, page_size=256, seqlen_k=1024, lengths=(900, 255, 256)), new=(0, 1), splits=(0, 1, 4))
    + variants(replace(PLAIN, page_size=512, seqlen_k=1536, new=5, rotary=32), interleaved=(False, True))
    + [replace(PLAIN, page_size=256, lengths=(0, 512, 0)), replace(PLAIN, page_size=256, lengths=())],
    "a batch that is looked up": variants(replace(PLAIN, indexed=True), new=(0, 5), causal=(False, True), splits=(1, 3))
    + variants(replace(DECODE, indexed=True), new=(0, 1), lengths=((300, 17, 480), (0, 0, 1)))
    + variants(replace(PLAIN, indexed=True, leftpad=(50, 17, 0)), new=(0, 5), causal=(False, True))
    + [replace(PLAIN, indexed=True, lengths=())],
    "padding windows softcap and alibi": variants(
        replace(PLAIN, leftpad=(100, 17, 3)), causal=(False, True), splits=(0, 1, 3), head_dim=(64, 128)
    )
    + variants(replace(DECODE, leftpad=(100, 17, 3)), splits=(0, 1, 3))
    + variants(replace(PLAIN, left=30), right=(None, 4), new=(0, 5))
    + variants(replace(PLAIN, softcap=20.0), new=(0, 5))
    + variants(replace(PLAIN, alibi="bh"), new=(0, 5), causal=(False, True)),
}


@cases(RIGHT)
def test_results_are_right(make_call, problem: Cached) -> None:
    call = make_call(problem)
    call.launch()
    call.check()


def random_problem(seed: int) -> Cached:
    rng = random.Random(seed)
    batch, paged, new = rng.randint(1, 4), rng.random() < 0.4, rng.choice([0, 0, 1, rng.randint(1, 40)])
    seqlen_k = 256 * rng.randint(1, 4) if paged else rng.randint(64, 900)
    lengths = tuple(rng.randint(0, seqlen_k - new) for _ in range(batch))
    head_dim = 8 * rng.randint(2, 32)
    fields = random_fields(rng, 300) | {"head_dim": head_dim, "softcap": 0.0, "alibi": ""}
    if fields["left"] is not None:  # what is appended must be seen
        fields["left"] = max(fields["left"], new)
    return Cached(
        batch=batch,
        seqlen_q=rng.choice([1, 1, max(new, 1), rng.randint(1, 16)]),
        seqlen_k=seqlen_k,
        lengths=lengths,
        new=new,
        rotary=16 * rng.randint(1, head_dim // 16) if new and rng.random() < 0.5 else 0,
        indexed=not paged and rng.random() < 0.4,
        leftpad=tuple(rng.randint(0, length) for length in lengths) if not paged and rng.random() < 0.3 else (),
        page_size=256 if paged else 0,
        splits=rng.choice([0, 0, 1, 3]),
        seed=seed,
        **fields,
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_random_problem(make_call, seed: int) -> None:
    problem = random_problem(seed)
    call = make_call(replace(problem, interleaved=bool(problem.rotary) and seed % 2 == 0))
    call.launch()
    call.check()


@cases([replace(PLAIN, new=5, causal=True), replace(DECODE, new=1, page_size=256, rotary=32)])
def test_a_captured_call_appends_when_it_is_replayed(make_call, problem: Cached) -> None:
    call = make_call(problem)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.launch()
    graph.replay()
    call.check()
    call.launch()  # the same rows again
    call.check()
