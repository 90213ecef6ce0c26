"""Dropout: reproducible, from any source of seeds, and exactly what p_debug says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from attention import Call, Problem, cases, largest, variants
from dropping import Dropping
from packed import Packed, packed
from torch_with_gpu import torch

DROP = Problem(seqlen_q=113, seqlen_k=203, heads_q=6, heads_k=3, dropout=0.17)


@pytest.fixture
def make_dropping(make_call: Callable[[Problem], Call]) -> Callable[..., Dropping]:
    return lambda problem, **options: Dropping(make_call(problem), **options)


def run(dropping: Dropping) -> torch.Tensor:
    dropping.call.poison()
    dropping.call.launch()
    torch.cuda.synchronize()
    return dropping.call.o.tensor.clone()


@cases(
    variants(DROP, head_dim=(32, 64, 72, 128, 256), causal=(False, True), dtype=("fp16", "bf16"))
    + variants(DROP, dropout=(0.5, 0.9), causal=(False, True))
    + variants(DROP, alibi=("bh",), left=(None, 60), causal=(False, True))
    + variants(replace(DROP, seqlen_q=1, heads_q=6, heads_k=2), head_dim=(64, 128))
    + variants(replace(DROP, seqlen_q=256, seqlen_k=384, layout="gaps"), head_dim=(64, 128))
)
def test_what_is_dropped_is_what_p_debug_says(make_dropping, problem: Problem) -> None:
    dropping = make_dropping(problem)
    run(dropping)
    dropping.call.check(dropping)


@cases(variants(replace(DROP, batch=4, seqlen_q=256, seqlen_k=256), dropout=(0.1, 0.3, 0.7)))
def test_the_dropped_fraction_is_that_asked_for(make_dropping, problem: Problem) -> None:
    dropping = make_dropping(problem)
    run(dropping)
    fraction = 1 - dropping.kept().double().mean().item()
    # a random byte is compared with 255ths: off by up to 1/255; and chance, of a million draws
    assert abs(fraction - problem.dropout) < 1 / 255 + 0.005


@cases(variants(DROP, causal=(False, True), head_dim=(64, 128)))
def test_the_same_seed_and_offset_give_the_same_bits(make_dropping, problem: Problem) -> None:
    dropping = make_dropping(problem)
    first = run(dropping)
    assert torch.equal(run(dropping), first)
    assert dropping.rng_state.tolist() == [1234, 56]
    plain = make_dropping(problem, debug=False)  # other kernels, the same numbers
    assert largest(run(plain).double() - first.double()) < 1e-2
    for seed, offset in ((1235, 56), (1234, 60)):
        dropping.call.args.seed, dropping.call.args.offset = seed, offset
        assert not torch.equal(run(dropping), first)
        assert dropping.rng_state.tolist() == [seed, offset]


@cases(variants(DROP, causal=(False, True)))
def test_a_seed_on_the_device_is_as_good_as_a_value(make_dropping, problem: Problem) -> None:
    dropping = make_dropping(problem)
    by_value = run(dropping)
    dropping.from_device(1234, 50, intragraph=6)
    dropping.rng_state.fill_(-1)
    assert torch.equal(run(dropping), by_value)
    assert dropping.rng_state.tolist() == [1234, 56]


def test_a_captured_call_draws_fresh_numbers_in_every_replay(make_dropping) -> None:
    dropping = make_dropping(DROP)
    expected = {}
    for offset in (56, 120):
        dropping.call.args.offset = offset
        expected[offset] = run(dropping)
    dropping.from_device(1234, 0, intragraph=6)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dropping.call.launch()
    for offset, result in expected.items():
        dropping.from_device(1234, offset - 6, intragraph=6)
        dropping.call.poison()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(dropping.call.o.tensor, result)
        assert dropping.rng_state.tolist() == [1234, offset]


@cases(
    variants(
        packed((113, 0, 64, 5), (203, 77, 0, 130), heads_q=6, heads_k=3, dropout=0.17),
        causal=(False, True),
        head_dim=(64, 72, 128),
    )
)
def test_packed_sequences(make_call, problem: Packed) -> None:
    call = make_call(problem)
    dropping = Dropping(call)
    run(dropping)
    assert dropping.rng_state.tolist() == [1234, 56]
    call.check(dropping)
