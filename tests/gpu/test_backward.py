"""fa_bwd on a GPU: right gradients, nothing else touched, the same bits when asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from attention import Call, Problem, cases, random_fields, variants
from gradients import Backward
from packed import EMPTY, MANY, UNEVEN, Packed, PackedCall, packed
from torch_with_gpu import torch

from support.fa_abi import Answer, Contents, Family, Library, OneFamily


@pytest.fixture
def make_backward(library: Library, require: Callable[[Answer], None]) -> Callable[..., Backward]:
    """Run the forward pass of a problem and prepare its backward pass, if the library runs both."""

    def make(problem: Problem, **options: bool) -> Backward:
        return backward_of(problem, library, require, **options)

    return make


def backward_of(problem: Problem, library: Library, require: Callable[[Answer], None], **options: bool) -> Backward:
    call = PackedCall(problem, library) if isinstance(problem, Packed) else Call(problem, library)
    require(library.supports(0, call.args))
    backward = Backward(call, **options)
    require(library.bwd_workspace(backward.args)[0])
    call.launch()
    return backward


def run(backward: Backward) -> None:
    backward.poison()
    backward.launch()
    backward.check()


SHAPES = ((113, 203), (128, 128), (203, 113), (1, 300), (257, 64))


RIGHT = {
    "every head dim": [
        replace(problem, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(
            Problem(),
            head_dim=(8, 32, 40, 64, 72, 96, 104, 128, 160, 192, 200, 256),
            dtype=("fp16", "bf16"),
            causal=(False, True),
        )
        for sq, sk in ((113, 203), (256, 256))
    ],
    "lengths that are odd and unequal": [
        replace(problem, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(Problem(batch=1), head_dim=(64, 128), causal=(False, True))
        for sq, sk in (*SHAPES, (1, 1), (3, 799), (512, 127), (1023, 1024), (1024, 1023), (31, 4096))
    ],
    "grouped and multi query heads": [
        replace(problem, heads_q=heads, heads_k=heads_k)
        for problem in variants(
            Problem(seqlen_q=150, seqlen_k=200), causal=(False, True), head_dim=(64, 72, 128), dtype=("fp16", "bf16")
        )
        for heads, heads_k in ((2, 2), (4, 2), (8, 2), (16, 2), (7, 1))
    ],
    "windows": [
        replace(problem, left=left, right=right, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(Problem(), head_dim=(64, 128))
        for left, right in ((0, 0), (64, 0), (0, 64), (100, 50), (None, 7), (7, None), (10_000, 3))
        for sq, sk in ((113, 203), (300, 200))
    ]
    + variants(
        Problem(left=20, seqlen_q=200, seqlen_k=256), causal=(True,), dtype=("fp16", "bf16"), head_dim=(64, 128)
    ),
    "softcap and alibi": variants(
        Problem(seqlen_q=113, seqlen_k=203),
        softcap=(1.5, 50.0),
        head_dim=(64, 128),
        causal=(False, True),
        dtype=("fp16", "bf16"),
    )
    + variants(
        Problem(heads_q=6, heads_k=3, seqlen_q=113, seqlen_k=203),
        alibi=("h", "bh"),
        head_dim=(64, 128),
        causal=(False, True),
    )
    + variants(Problem(alibi="h", left=64, right=3, seqlen_q=150, seqlen_k=210), dtype=("fp16", "bf16")),
    "dropout": variants(
        Problem(seqlen_q=113, seqlen_k=203, heads_q=4, heads_k=2, dropout=0.17),
        head_dim=(32, 64, 96, 128, 192),
        causal=(False, True),
        dtype=("fp16", "bf16"),
    )
    + variants(Problem(seqlen_q=256, seqlen_k=256, dropout=0.5, left=50), head_dim=(64, 128))
    + variants(packed((113, 0, 64), (203, 77, 130), dropout=0.17), causal=(False, True)),
    "strides": variants(
        Problem(seqlen_q=113, seqlen_k=203, heads_q=6, heads_k=3, batch=3),
        layout=("bhsd", "sbhd", "gaps"),
        head_dim=(64, 72),
        causal=(False, True),
    ),
}


@cases(RIGHT)
def test_results_are_right(make_backward, problem: Problem) -> None:
    run(make_backward(problem))


@cases(
    variants(UNEVEN, head_dim=(64, 72, 128, 256), causal=(False, True), dtype=("fp16", "bf16"))
    + variants(UNEVEN, heads_k=(2, 1), causal=(False, True), layout=("bshd", "gaps"))
    + variants(EMPTY, causal=(False, True), left=(None, 30), head_dim=(64, 128))
    + variants(MANY, causal=(False, True), heads_k=(2, 1), head_dim=(64, 128))
    + variants(replace(UNEVEN, softcap=20.0), causal=(False, True))
    + variants(replace(UNEVEN, alibi="bh"), causal=(False, True))
    + variants(packed((200, 300), (100, 130)), left=(None, 50), right=(None, 150))
    + [packed((0, 0), (7, 9), heads_k=2, spare=0), packed((7, 9), (0, 0), heads_k=2, spare=0), packed((7, 9), (0, 0))]
)
def test_packed_sequences(make_backward, problem: Packed) -> None:
    run(make_backward(problem))


@cases([Problem(seqlen_q=0, heads_k=2), Problem(seqlen_k=0, heads_k=2), Problem(seqlen_k=0, layout="gaps")])
def test_without_queries_or_keys_gradients_are_zero(make_backward, problem: Problem) -> None:
    backward = make_backward(problem)
    run(backward)
    assert not backward.dq.tensor.any()
    assert not backward.dk.tensor.any()
    assert not backward.dv.tensor.any()


@cases(
    [
        *variants(
            Problem(seqlen_q=600, seqlen_k=700, heads_q=4, heads_k=2),
            causal=(False, True),
            head_dim=(64, 128),
            dtype=("fp16", "bf16"),
        ),
        replace(UNEVEN, seed=3),
        replace(EMPTY, head_dim=128),
        Problem(seqlen_q=300, seqlen_k=300, dropout=0.17),
        Problem(seqlen_q=300, seqlen_k=500, left=40),
        Problem(batch=20, heads_q=10, heads_k=10, seqlen_q=130, seqlen_k=300),
    ]
)
def test_deterministic_runs_give_equal_bits(make_backward, problem: Problem) -> None:
    backward = make_backward(problem, deterministic=True)
    run(backward)
    first = backward.bits()
    for _ in range(9):
        backward.poison()
        backward.launch()
        assert all(torch.equal(one, other) for one, other in zip(backward.bits(), first, strict=True))


@cases(
    variants(
        Problem(seqlen_q=113, seqlen_k=203, batch=2), heads_q=(2, 4, 6, 8, 14), heads_k=(2,), dtype=("fp16", "bf16")
    )
)
def test_the_sum_over_a_group_is_that_of_torch_to_the_bit(
    library: Library, contents: Contents, require, problem: Problem
) -> None:
    """What upstream does, over the same expanded gradients: they end fa2's workspace. fa4 sums in its kernel."""
    if Family.FA2 not in contents.families:
        pytest.skip("this library has no FlashAttention-2")
    fa2 = library if contents.families == (Family.FA2,) else OneFamily(library.path, Family.FA2)
    backward = backward_of(problem, fa2, require)
    run(backward)
    group = problem.heads_q // problem.heads_k
    if group == 1:
        return
    shape = (problem.batch, problem.seqlen_k, problem.heads_k, group, problem.head_dim)
    end = backward.args.workspace_bytes // 2
    size = problem.batch * problem.seqlen_k * problem.heads_q * problem.head_dim
    for name, start in (("dk", end - 2 * size), ("dv", end - size)):
        expanded = backward.workspace[start : start + size].view(problem.torch_dtype).view(shape)
        assert torch.equal(expanded.sum(dim=3), getattr(backward, name).tensor)


@cases(
    [
        Problem(seqlen_q=200, seqlen_k=333, causal=True),
        Problem(heads_q=4, heads_k=2),
        replace(UNEVEN, heads_k=2),
        Problem(seqlen_k=0),
    ]
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_captured_pass_replays_over_new_inputs(make_backward, problem: Problem, deterministic: bool) -> None:
    backward = make_backward(problem, deterministic=deterministic)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backward.call.launch()
        backward.launch()
    for seed in (1, 2):
        backward.call.refill(seed)
        backward.d_o.fill(torch.Generator(device="cuda").manual_seed(seed))
        backward.call.poison()
        backward.poison()
        graph.replay()
        backward.check()


def test_work_waits_for_its_stream_and_for_no_other(make_backward) -> None:
    backward = make_backward(Problem(heads_q=4, heads_k=2), deterministic=True)
    backward.launch()  # loads the kernels
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        backward.d_o.fill(torch.Generator(device="cuda").manual_seed(5))
        backward.poison()
        backward.launch()
        assert not stream.query(), "the call waited for the device"
    backward.check()


def random_problem(seed: int) -> Problem:
    rng = random.Random(seed)
    fields, dropout = random_fields(rng, 500) | {"seed": seed}, rng.choice([0.0, 0.0, 0.2])
    if dropout:
        fields |= {"dropout": dropout, "softcap": 0.0, "head_dim": 8 * rng.randint(1, 24)}
    # With dropout and one key all of a gradient cancels but the rounding of o, which no plain computation has.
    few = 8 if dropout else 1
    batch = rng.randint(1, 4)
    if rng.random() < 0.5:
        lengths_q = tuple(rng.choice([0, 1, rng.randint(1, 300)]) for _ in range(batch))
        lengths_k = tuple(rng.choice([0, few, rng.randint(few, 300)]) for _ in range(batch))
        return packed((*lengths_q, 3), (*lengths_k, 5), **fields)
    return Problem(batch=batch, seqlen_q=rng.randint(1, 400), seqlen_k=rng.randint(1, 500), **fields)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_problem(make_backward, seed: int) -> None:
    run(make_backward(random_problem(seed), deterministic=seed % 3 == 0))
