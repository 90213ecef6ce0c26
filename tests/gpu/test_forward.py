"""fa_fwd on a GPU: right results, nothing else touched, on the stream that was named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from attention import Call, Problem, cases, random_fields, variants
from packed import DECODE, EMPTY, UNEVEN, packed
from torch_with_gpu import torch

from support.fa_abi import Library, Status

LENGTHS = (
    (1, 1), (1, 239), (3, 799), (64, 1), (127, 512), (113, 203), (128, 128), (129, 257), (203, 113),
    (512, 127), (255, 256), (1023, 1024), (1024, 1023), (2048, 1), (1, 4096), (4096, 31),
)  # fmt: skip
HEAD_DIMS = (8, 32, 40, 64, 72, 80, 96, 104, 128, 136, 160, 192, 200, 224, 256)


RIGHT = {
    "every head dim": [
        replace(problem, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(Problem(), head_dim=HEAD_DIMS, dtype=("fp16", "bf16"), causal=(False, True))
        for sq, sk in ((113, 203), (256, 256), (1, 300))
    ],
    "lengths that are odd unequal and long": [
        replace(problem, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(Problem(), head_dim=(64, 128), causal=(False, True))
        for sq, sk in LENGTHS
    ]
    + variants(
        Problem(seqlen_q=4096, seqlen_k=4096, batch=1, heads_q=2, heads_k=1), head_dim=(64, 128), causal=(False, True)
    ),
    "grouped and multi query heads": [
        replace(problem, heads_q=heads, heads_k=heads_k)
        for problem in variants(Problem(seqlen_k=333), seqlen_q=(1, 17, 200), causal=(False, True), head_dim=(64, 128))
        for heads, heads_k in ((6, 3), (8, 2), (8, 1), (7, 1))
    ],
    "windows": [
        replace(problem, left=left, right=right, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(Problem(), head_dim=(64, 96), dtype=("fp16", "bf16"))
        for left, right in ((0, 0), (64, 0), (0, 64), (100, 50), (None, 7), (7, None), (10_000, 3), (3, 10_000))
        for sq, sk in ((1, 129), (113, 203), (300, 200))
    ]
    + variants(
        Problem(left=20, seqlen_q=200, seqlen_k=256), causal=(True,), dtype=("fp16", "bf16"), head_dim=(64, 128)
    ),
    "softcap": variants(
        Problem(seqlen_q=113, seqlen_k=203),
        softcap=(1.5, 50.0),
        dtype=("fp16", "bf16"),
        head_dim=(64, 128, 256),
        causal=(False, True),
    ),
    "alibi": [
        replace(problem, seqlen_q=sq, seqlen_k=sk)
        for problem in variants(
            Problem(heads_q=6, heads_k=3), alibi=("h", "bh"), causal=(False, True), head_dim=(64, 128)
        )
        for sq, sk in ((1, 257), (113, 203), (256, 256), (203, 113))
    ]
    + variants(
        Problem(alibi="h", left=64, right=3, seqlen_q=150, seqlen_k=210), softcap=(0.0, 20.0), dtype=("fp16", "bf16")
    ),
    "splits of the keys": [
        replace(problem, splits=splits, seqlen_q=sq, causal=causal)
        for problem in variants(Problem(seqlen_k=1111, batch=1, heads_q=3, heads_k=3), head_dim=(64, 80, 96, 128, 256))
        for splits, sq, causal in (
            (2, 1, False),
            (3, 5, True),
            (7, 64, False),
            (16, 65, True),
            (40, 1, False),
            (128, 3, False),
        )
    ]
    + variants(Problem(seqlen_q=1, seqlen_k=5000, heads_q=8, heads_k=2, splits=5), batch=(1, 3), head_dim=(64, 128))
    + [
        Problem(seqlen_q=9, seqlen_k=700, splits=4, left=300, right=20),
        Problem(seqlen_q=9, seqlen_k=700, splits=4, alibi="bh", softcap=10.0),
        Problem(seqlen_q=300, seqlen_k=200, splits=3, causal=True),
        Problem(seqlen_q=9, seqlen_k=10, splits=100),
    ],
    "decoding with the automatic number of splits": [
        replace(problem, seqlen_k=seqlen_k)
        for problem in variants(
            Problem(splits=0, seqlen_q=1, heads_q=8), heads_k=(1, 8), head_dim=(64, 128), batch=(1, 3)
        )
        for seqlen_k in (1, 256, 3001, 20_000)
    ],
    "strides": variants(
        Problem(seqlen_q=113, seqlen_k=203, heads_q=6, heads_k=3, batch=3),
        layout=("bhsd", "sbhd", "gaps"),
        head_dim=(64, 72, 128),
        causal=(False, True),
    )
    + variants(Problem(seqlen_q=1, seqlen_k=2000, heads_q=6, heads_k=2, splits=3), layout=("bhsd", "sbhd", "gaps")),
}


@cases(RIGHT)
def test_results_are_right(make_call, problem: Problem) -> None:
    call = make_call(problem)
    call.launch()
    call.check()


@cases(
    [
        *variants(
            Problem(seqlen_k=0, heads_q=6, heads_k=2), seqlen_q=(1, 77), layout=("bshd", "gaps"), dtype=("fp16", "bf16")
        ),
        Problem(seqlen_k=0, seqlen_q=3000, heads_q=32, heads_k=32, head_dim=64, causal=True),
    ]
)
def test_no_keys_give_zeros_and_infinite_lse(make_call, problem: Problem) -> None:
    call = make_call(problem)
    call.launch()
    call.check()
    assert not call.o.tensor.any()
    assert bool((call.lse == float("inf")).all())


@cases([Problem(seqlen_q=0), Problem(batch=0), Problem(seqlen_q=0, seqlen_k=0)])
def test_no_queries_touch_nothing(make_call, problem: Problem) -> None:
    call = make_call(problem)
    call.launch()
    torch.cuda.synchronize()
    assert bool((call.o.storage == 0x7FFF).all())


def random_problem(seed: int) -> Problem:
    rng = random.Random(seed)
    seqlen_k = rng.choice([rng.randint(1, 300), rng.randint(1, 2000)])
    return Problem(
        batch=rng.randint(1, 4),
        seqlen_q=rng.choice([1, rng.randint(1, 300), rng.randint(1, 1000)]),
        seqlen_k=seqlen_k,
        scale=rng.choice([0.0, 0.0, 0.05]),
        splits=rng.choice([0, 0, 1, 4]),
        seed=seed,
        **{**random_fields(rng, seqlen_k), "layout": rng.choice(["bshd", "bhsd", "sbhd", "gaps"])},
    )


@pytest.mark.parametrize("seed", range(100))
def test_a_random_problem(make_call, seed: int) -> None:
    call = make_call(random_problem(seed))
    call.launch()
    call.check()


SOME = [
    Problem(),
    Problem(causal=True, seqlen_q=200, seqlen_k=333),
    Problem(seqlen_q=1, seqlen_k=3000, heads_q=3, heads_k=3, batch=1, splits=5),
    Problem(seqlen_k=0),
]


@cases(SOME)
def test_work_waits_for_its_stream_and_for_no_other(make_call, problem: Problem) -> None:
    call = make_call(problem)
    call.launch()  # loads the kernels
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # some 100 ms, before the inputs are there
        call.refill(seed=1)
        call.poison()  # what another stream has written by now is lost
        call.launch()
        assert not stream.query(), "the call waited for the device"
    call.check()


@cases([*SOME, UNEVEN, EMPTY, DECODE, packed((113, 1, 64), (703, 77, 512), page_size=256)])
def test_a_captured_call_replays_over_new_inputs(make_call, problem: Problem) -> None:
    call = make_call(problem)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # in global mode: whatever is illegal in capture fails here
        call.launch()
    for seed in (1, 2, 3):
        call.refill(seed)
        call.poison()
        graph.replay()
        call.check()


def test_two_streams_at_once_do_not_mix(make_call) -> None:
    calls = [make_call(Problem(seqlen_q=300, seqlen_k=300, seed=seed)) for seed in (1, 2)]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    for _ in range(50):
        for call, stream in zip(calls, streams, strict=True):
            with torch.cuda.stream(stream):
                call.launch()
    for call in calls:
        call.check()


@cases(SOME[:3])
def test_the_same_call_gives_the_same_bits(make_call, problem: Problem) -> None:
    call = make_call(problem)
    call.launch()
    first = call.o.storage.clone(), call.lse_storage.clone()
    for _ in range(5):
        call.poison()
        call.launch()
        assert torch.equal(call.o.storage, first[0])
        assert torch.equal(call.lse_storage, first[1])


def test_a_call_without_the_workspace_that_it_needs_is_refused(make_call) -> None:
    call = make_call(Problem(splits=0, seqlen_q=1, seqlen_k=9000, batch=1))
    call.launch()
    call.check()
    _, needed, _ = call.library.fwd_workspace(call.args)
    call.workspace, call.args.workspace, call.args.workspace_bytes = None, None, 0
    assert call.library.fwd(call.args).status is (Status.WORKSPACE_TOO_SMALL if needed else Status.OK)


def test_a_refused_call_launches_nothing(make_call) -> None:
    call = make_call(Problem())
    call.args.scale = float("nan")
    call.args.stream = torch.cuda.current_stream().cuda_stream
    assert call.library.fwd(call.args).status is Status.INVALID
    torch.cuda.synchronize()
    assert bool((call.o.storage == 0x7FFF).all())


def test_a_device_that_is_not_there_is_named(make_call) -> None:
    call = make_call(Problem())
    count = torch.cuda.device_count()
    call.args.device = count
    answer = call.library.fwd(call.args)
    assert answer.status is Status.INVALID
    assert f"device is {count}; this process sees {count}" in answer.text


def test_a_call_for_another_device_leaves_the_current_one(library: Library) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with torch.cuda.device(1):
        call = Call(Problem(), library, device=1)
        call.args.stream = torch.cuda.current_stream().cuda_stream
        torch.cuda.synchronize()
    answer = library.fwd(call.args)
    assert answer.status is Status.OK, answer
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        call.check()
