"""Which family of kernels runs a call: the best that can, or the one that was asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from support.fa_abi import PACKED, Choice, Dtype, Family, Flag, ForwardArgs, OneFamily, Pass, Status, backward_args
from support.fa_abi import forward_args as forward_args_without_workspace
from support.stub_library import FEATURES, HEAD_DIMS, Selection, Stub, units_of

A100, L40, H100 = 0, 1, 2
"""Devices of stub_library, of which the second family in stub/fa4.cpp runs on the H100."""

BOTH = Selection(
    fwd=units_of(HEAD_DIMS), bwd=units_of(HEAD_DIMS), features=FEATURES, families=("fa4", "fa2"), sass=(80, 90)
)
DROPOUT = {"dropout": 0.5, "rng_state": 0x60000}


@pytest.fixture
def both(build_stub: Callable[[Selection], Stub]) -> Stub:
    return build_stub(BOTH)


def forward_args(**fields: Any) -> ForwardArgs:
    return forward_args_without_workspace(**{"workspace": 0x70000000, "workspace_bytes": 1 << 20, **fields})


def ran(stub: Stub, args: ForwardArgs) -> str:
    """Return the family whose launch was recorded."""
    answer = stub.fwd(args)
    assert answer.status is Status.OK, answer.text
    [launch] = stub.launches()
    return {"fill": "fa4", "fwd": "fa2", "empty_keys": "none"}[launch["kind"]]


@pytest.mark.parametrize(
    ("fields", "family", "why_not"),
    [
        ({}, "fa4", ""),
        ({"device": A100}, "fa2", "fa4: device 0 is no sm_90"),
        (DROPOUT, "fa2", "fa4: dropout is 0.5, which it does not have"),
        ({"head_dim": 128}, "fa2", "fa4: head_dim is 128, and it has 64"),
        ({"seqlen_q": 1}, "fa2", "fa4: one query a head is slower here"),
        ({"seqlen_q": 1, "family": Family.FA4}, "fa4", ""),
        ({"family": Family.FA2}, "fa2", ""),
        ({"seqlen_k": 0}, "none", ""),
    ],
)
def test_the_best_family_that_can_runs_a_call_and_supports_names_it(both, fields, family, why_not) -> None:
    args = forward_args(**{"device": H100, **fields})
    assert ran(both, args) == family
    answer, choice = both.choose(args.device, args)
    assert answer.status is Status.OK
    if family != "none":
        assert choice == Choice(Family.FA4 if family == "fa4" else Family.FA2, family, why_not)


def test_without_a_device_the_best_family_for_any_gpu_is_named(both) -> None:
    assert both.choose(-1, forward_args(device=A100))[1].family is Family.FA4


@pytest.mark.parametrize(("family", "kinds"), [(Family.FA4, ["fill", "fill"]), (Family.FA2, ["fwd", "bwd"])])
def test_a_library_that_is_asked_for_one_family_runs_it_in_both_passes(both, family, kinds) -> None:
    asked = OneFamily(both.path, family)
    for run, args in ((asked.fwd, forward_args(device=H100)), (asked.bwd, backward_args(device=H100))):
        assert run(args).status is Status.OK  # type: ignore[operator]
    assert [launch["kind"] for launch in both.launches()] == kinds


def test_a_slower_family_runs_what_no_other_can(build_stub) -> None:
    stub = build_stub(Selection(fwd=units_of((128,)), families=("fa4", "fa2")))
    args = forward_args(device=H100, seqlen_q=1)
    assert ran(stub, args) == "fa4"
    assert stub.choose(H100, args)[1] == Choice(Family.FA4, "fa4", "")


def test_the_workspace_is_that_of_the_family_that_runs(both) -> None:
    assert both.fwd_workspace(forward_args(device=H100))[1:] == (4096, 1)
    assert both.fwd_workspace(forward_args(device=A100))[1:] == (0, 1)
    small = both.fwd(forward_args(device=H100, workspace_bytes=100))
    assert small.status is Status.WORKSPACE_TOO_SMALL


@pytest.mark.parametrize(("device", "family", "kind"), [(H100, 0, "fill"), (H100, 2, "bwd"), (A100, 0, "bwd")])
def test_the_backward_pass_chooses_for_itself(both, device, family, kind) -> None:
    answer = both.bwd(backward_args(device=device, family=family))
    assert answer.status is Status.OK, answer.text
    assert [launch["kind"] for launch in both.launches()] == [kind]
    assert (both.bwd_workspace(backward_args(device=device, family=family))[1] == 4096) == (kind == "fill")


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"family": Family.FA4, **DROPOUT}, Status.UNSUPPORTED, "dropout is 0.5, which it does not have"),
        ({"family": Family.FA4, "device": L40}, Status.NO_KERNEL_FOR_ARCH, "device 1 is no sm_90"),
        (
            {"family": 5},
            Status.INVALID,
            "family is 5; allowed: 0, FA_FAMILY_FA2 (2), FA_FAMILY_FA3 (3), FA_FAMILY_FA4 (4)",
        ),
        (
            {"family": 3},
            Status.UNSUPPORTED,
            "family is 3 (fa3), which is not in this library (it has: fa4, fa2); leave it 0 for the best one here",
        ),
    ],
)
def test_a_family_that_was_asked_for_says_what_it_cannot(both, fields, status, text) -> None:
    args = forward_args(**{"device": H100, **fields})
    for answer in (both.fwd(args), both.supports(args.device, args)):
        assert (answer.status, answer.text) == (status, text)
    assert both.launches() == []
    assert both.choose(args.device, args)[1] == Choice(None, "", "")


def test_where_no_family_can_each_says_why(both) -> None:
    args = forward_args(device=H100, softcap=3.0, **DROPOUT)
    answer = both.fwd(args)
    assert answer.status is Status.UNSUPPORTED
    assert answer.text.startswith("fa4: dropout is 0.5, which it does not have; fa2: dropout is 0.5 and softcap is 3")


def test_a_family_that_is_not_in_the_library_is_refused_and_said_to_be_missing(full) -> None:
    args = forward_args(device=H100, family=Family.FA4)
    for answer in (full.fwd(args), full.supports(H100, args), full.fwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert answer.text == (
            "family is 4 (fa4), which is not in this library (it has: fa2); leave it 0 for the best one here"
        )
    assert full.bwd(backward_args(family=Family.FA4)).status is Status.UNSUPPORTED
    args.family = 0
    assert full.choose(H100, args)[1] == Choice(Family.FA2, "fa2", "fa4: not in this library")


def test_a_refusal_on_the_way_to_a_family_leaves_the_error_text_untouched(both) -> None:
    both.fwd(forward_args(batch=-2))
    assert ran(both, forward_args(device=A100, flags=Flag.CAUSAL)) == "fa2"
    assert "batch is -2" in both.last_error()


def test_without_a_gpu_what_no_gpu_would_change_is_said_first(both) -> None:
    both.fails("cudaDeviceGetAttribute", 35)
    args = forward_args(device=63, softcap=3.0, **DROPOUT)
    assert both.fwd(args).status is Status.UNSUPPORTED
    answer = both.fwd(forward_args(device=63))
    assert answer.status is Status.CUDA
    assert "cudaDeviceGetAttribute" in answer.text


def test_build_info_lists_the_families_the_best_first(both) -> None:
    contents = both.contents()
    assert contents.families == (Family.FA4, Family.FA2)
    assert (Pass.FWD, 2, 64, False) in contents.units


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"attention_chunk": 7}, "attention_chunk is set"),
        ({"qv__data": 0x1000}, "qv.data is set"),
        ({"dtype": Dtype.E4M3, "out_dtype": Dtype.BF16}, "dtype is 3 (FA_DTYPE_E4M3)"),
        ({"head_dim": 64, "head_dim_v": 512}, "head_dim_v is over 256"),
        ({**PACKED, "seqused_q": 0x1000}, "seqused_q is set"),
    ],
)
def test_words_of_a_family_that_is_not_there_reach_no_other(both, fields, text) -> None:
    for family in (0, Family.FA2, Family.FA4):
        args = forward_args(device=H100, family=family, **fields)
        for answer in (both.fwd(args), both.supports(H100, args)):
            assert answer.status is Status.UNSUPPORTED
            assert f"{text}, which is for family fa3" in answer.text
    assert both.launches() == []
