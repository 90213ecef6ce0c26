"""fa_fwd over packed sequences: with empty ones, with pages, and decoding."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from attention import cases, random_fields, variants
from packed import DECODE, EMPTY, UNEVEN, Packed, packed
from torch_with_gpu import torch

from support.fa_abi import Status

RIGHT = {
    "sequences of different lengths": variants(
        UNEVEN, head_dim=(64, 72, 128, 256), causal=(False, True), dtype=("fp16", "bf16")
    )
    + variants(
        replace(UNEVEN, heads_q=6, heads_k=2), layout=("bhsd", "gaps"), causal=(False, True), head_dim=(64, 128)
    ),
    "empty sequences": variants(EMPTY, head_dim=(64, 128), causal=(False, True), left=(None, 30)),
    "no keys at all": [packed((5, 0, 130), (0, 0, 0), spare=0), packed((1, 1), (0, 0), heads_q=8, heads_k=2)],
    "windows softcap and alibi": variants(UNEVEN, left=(None, 0, 40), right=(None, 0, 25), head_dim=(64, 96))
    + variants(UNEVEN, softcap=(20.0,), causal=(False, True))
    + variants(UNEVEN, alibi=("h", "bh"), causal=(False, True))
    + variants(packed((200, 300), (100, 130)), left=(None, 50), right=(None, 150)),
    "decoding": variants(DECODE, head_dim=(32, 64, 128, 256), dtype=("fp16", "bf16"))
    + variants(replace(DECODE, heads_k=1), splits=(0, 1, 3, 8))
    + variants(replace(DECODE, layout="gaps"), head_dim=(64, 72), splits=(1, 3))
    + [replace(DECODE, heads_k=8), replace(DECODE, lengths_k=(300, 0, 129, 0, 77)), replace(DECODE, spare=5, splits=0)]
    + [packed((1, 0, 1), (40, 50, 60), heads_q=8, heads_k=2, spare=0, splits=0)],
    "keys in use and keys to skip": variants(
        replace(UNEVEN, used=(150, 0, 128, 299)),
        leftpad=((), (10, 0, 100, 7)),
        causal=(False, True),
        head_dim=(64, 128),
    )
    + variants(replace(UNEVEN, leftpad=(10, 77, 100, 7)), causal=(False, True))
    + variants(replace(DECODE, used=(250, 1, 100, 900, 0), leftpad=(3, 0, 99, 500, 0)), splits=(0, 1, 4)),
    "pages": variants(
        packed((113, 1, 64), (703, 77, 512)),
        page_size=(256, 512),
        causal=(False, True),
        head_dim=(64, 128),
        heads_k=(4, 1),
    )
    + variants(packed((70, 0, 5, 33), (0, 77, 0, 1024), page_size=256), causal=(False, True), heads_k=(4, 2))
    + variants(replace(DECODE, page_size=256), splits=(0, 1, 3), head_dim=(64, 128))
    + variants(replace(DECODE, page_size=256, lengths_k=(300, 0, 129, 1000, 0)), splits=(0, 1, 3), heads_k=(2, 1, 8))[
        :6
    ]
    + [packed((1, 0, 1), (400, 50, 0), page_size=256, heads_q=8, heads_k=2, spare=0)]
    + variants(packed((200,), (100,), page_size=256), causal=(True,)),
}


@cases(RIGHT)
def test_results_are_right(make_call, problem: Packed) -> None:
    call = make_call(problem)
    call.launch()
    call.check()


def random_problem(seed: int) -> Packed:
    rng = random.Random(seed)
    batch, decode, paged = rng.randint(1, 6), rng.random() < 0.25, rng.random() < 0.3
    lengths_q = tuple(1 if decode else rng.choice([0, 1, rng.randint(1, 400)]) for _ in range(batch))
    lengths_k = tuple(rng.choice([0, 1, rng.randint(1, 700)]) for _ in range(batch))
    return packed(
        lengths_q if any(lengths_q) else (3, *lengths_q[1:]),
        lengths_k if any(lengths_k) else (3, *lengths_k[1:]),
        splits=0,
        page_size=rng.choice([256, 512]) if paged else 0,
        spare=rng.choice([0, 5]),
        seed=seed,
        **random_fields(rng, 500),
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_random_problem(make_call, seed: int) -> None:
    call = make_call(random_problem(seed))
    call.launch()
    call.check()


def test_pages_without_a_workspace_are_refused_and_launch_nothing(make_call) -> None:
    call = make_call(packed((113, 1, 64), (703, 77, 512), page_size=256))
    call.args.workspace, call.args.workspace_bytes = None, 0
    assert call.library.fwd(call.args).status is Status.WORKSPACE_TOO_SMALL
    torch.cuda.synchronize()
    assert bool((call.o.storage == 0x7FFF).all())
