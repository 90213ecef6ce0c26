"""What the backward pass of a real library refuses, and in which words. No GPU is needed for that."""

from __future__ import annotations

import pytest

from support.fa_abi import PACKED, Dtype, Flag, Library, Status, backward_args

NAN = float("nan")


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"size": 0}, ["size is 0", "sizeof(fa_bwd_args)", "576"]),
        ({"size": 5000}, ["size is 5000"]),
        ({"flags": Flag.ROTARY_INTERLEAVED}, ["0x8 means nothing in fa_bwd_args"]),
        ({"family": 1}, ["family is 1", "FA_FAMILY_FA2 (2)"]),
        ({"dtype": Dtype.FP32}, ["dtype is 4"]),
        ({"device": -1}, ["device is -1"]),
        ({"batch": -1}, ["batch is -1"]),
        ({"seqlen_q": 1 << 30}, ["seqlen_q is 1073741824"]),
        ({"heads_k": 3}, ["heads_q is 4 and heads_k is 3", "divides"]),
        ({"head_dim": 12}, ["head_dim is 12"]),
        ({"head_dim": 320}, ["head_dim is 320"]),
        ({"batch": 65535, "seqlen_q": 8193}, ["(seqlen_q up to 128s) is 2181004800", "2^31"]),
        ({**PACKED, "total_q": 1 << 29}, ["heads_q * (total_q + 128 * batch) is 2147484672", "2^31"]),
        ({**PACKED, "total_k": -2}, ["total_k is -2"]),
        ({"total_q": 4}, ["total_q is 4 and cu_seqlens_q is NULL"]),
        ({"total_k": 4}, ["total_k is 4 and cu_seqlens_k is NULL"]),
        ({"cu_seqlens_q": 0x60000}, ["cu_seqlens_q is set and cu_seqlens_k is NULL"]),
        ({"cu_seqlens_k": 0x60000}, ["cu_seqlens_k is set and cu_seqlens_q is NULL"]),
        ({**PACKED, "cu_seqlens_k": 0x60003}, ["cu_seqlens_k is 0x60003"]),
        ({"scale": NAN}, ["scale is nan"]),
        ({"softcap": -1.0}, ["softcap is -1"]),
        ({"dropout": 1.5}, ["dropout is 1.5"]),
        ({"dropout": 0.1}, ["rng_state is NULL", "as fa_fwd wrote them"]),
        ({"dropout": 0.1, "rng_state": 0x60001}, ["rng_state is 0x60001", "8 bytes"]),
        ({"window_left": 3}, ["window_left is 3", "no FA_FLAG_WINDOW_LEFT"]),
        ({"window_right": -3, "flags": Flag.WINDOW_RIGHT}, ["window_right is -3"]),
        ({"q__data": None}, ["q.data is NULL"]),
        ({"k__data": None}, ["k.data is NULL"]),
        ({"v__data": 0x30004}, ["v.data is 0x30004"]),
        ({"o__data": None}, ["o.data is NULL"]),
        ({"d_o__data": None}, ["d_o.data is NULL"]),
        ({"d_o__head_stride": 63}, ["d_o.head_stride is 63"]),
        ({"dq__data": None}, ["dq.data is NULL"]),
        ({"dq__row_stride": 0}, ["dq.row_stride is 0 over 128", "overlap"]),
        ({"dk__data": 0x70002}, ["dk.data is 0x70002"]),
        ({"dk__batch_stride": 0}, ["dk.batch_stride is 0 over 2"]),
        ({"dv__data": None}, ["dv.data is NULL"]),
        ({"dv__head_stride": 0}, ["dv.head_stride is 0 over 4"]),
        ({"lse": None}, ["lse is NULL"]),
        ({"lse": 0x90001}, ["lse is 0x90001"]),
        ({"softmax_d": None}, ["softmax_d is NULL", "seqlen_q up to 128s"]),
        ({**PACKED, "softmax_d": None}, ["softmax_d is NULL", "total_q + 128 * batch"]),
        ({"softmax_d": 0xA0002}, ["softmax_d is 0xa0002"]),
        ({"workspace": 0x70000004}, ["workspace is 0x70000004", "16 bytes"]),
        ({"workspace": None}, ["workspace is NULL and workspace_bytes is"]),
        ({"alibi_slopes": 0x60002}, ["alibi_slopes is 0x60002"]),
        ({"alibi_slopes": 0x60000, "alibi_batch_stride": -4}, ["alibi_batch_stride is -4"]),
        ({"seqlen_q": 0, "dk__data": None}, ["dk.data is NULL"]),
        ({"seqlen_k": 0, "dq__data": None}, ["dq.data is NULL"]),
    ],
)
def test_a_wrong_argument_of_the_backward_pass_is_named_as_well(
    library: Library, fields: dict[str, object], fragments: list[str]
) -> None:
    answer = library.bwd(backward_args(**fields))  # type: ignore[arg-type]
    assert answer.status is Status.INVALID
    assert all(fragment in answer.text for fragment in fragments), answer.text


def test_backward_without_units_says_what_would_have_them(library: Library) -> None:
    args = backward_args()
    for answer in (library.bwd(args), library.bwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert "head dim 64 bf16 backward is not in this library (it has: none)" in answer.text
        assert "flashdepot get --passes fwd,bwd --head-dims 64 --dtypes bf16" in answer.text


def test_a_dtype_that_no_family_has_is_told_from_a_wrong_one(library: Library) -> None:
    args = backward_args(dtype=Dtype.E4M3)
    for answer in (library.bwd(args), library.bwd_supports(-1, args), library.bwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert "dtype is 3 (FA_DTYPE_E4M3)" in answer.text


def test_softcap_and_dropout_together_have_no_gradient(library: Library) -> None:
    answer = library.bwd(backward_args(softcap=1.0, dropout=0.5, rng_state=0x60000))
    assert answer.status is Status.UNSUPPORTED
    assert "dropout is 0.5 and softcap is 1" in answer.text


def test_backward_workspace_needs_somewhere_to_write_the_bytes(library: Library) -> None:
    assert library.c.fa_bwd_workspace(backward_args(), None) == Status.INVALID
    assert "bytes is NULL" in library.last_error()
