"""What a real library refuses, and in which words. No GPU is needed for that."""

import pytest

from support.fa_abi import PACKED, Dtype, Flag, Library, Status, Tensor, backward_args, forward_args

NAN = float("nan")
APPEND = {
    "cache_seqlens": 0x60000,
    "seqlen_new": 2,
    "k_new": Tensor(0x60000, 512, 256, 64),
    "v_new": Tensor(0x60000, 512, 256, 64),
}
DROPOUT = {"dropout": 0.1, "rng_state": 0x60000}
ROTARY = {**APPEND, "rotary_cos": 0x60000, "rotary_sin": 0x60000, "rotary_dim": 32, "rotary_seqlen": 128}


def assert_unsupported_everywhere(library: Library, fields: dict[str, object], fragments: list[str]) -> None:
    """Every function that takes the arguments refuses them, and says why."""
    args = forward_args(**fields)  # type: ignore[arg-type]
    for answer in (library.fwd(args), library.supports(-1, args), library.fwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert all(fragment in answer.text for fragment in fragments), answer.text


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"size": 0}, ["size is 0", "sizeof(fa_fwd_args)", "688"]),
        ({"size": 5000}, ["size is 5000"]),
        ({"flags": 1 << 20}, ["flags is 0x100000", "0x100000 means nothing in fa_fwd_args"]),
        ({"flags": Flag.DETERMINISTIC}, ["0x10 means nothing"]),
        ({"flags": Flag.ROTARY_INTERLEAVED}, ["FA_FLAG_ROTARY_INTERLEAVED", "rotary_cos is NULL"]),
        ({"dtype": 0}, ["dtype is 0", "FA_DTYPE_FP16 (1)", "FA_DTYPE_BF16 (2)"]),
        ({"dtype": Dtype.FP32}, ["dtype is 4", "FA_DTYPE_FP16 (1)"]),
        ({"device": -1}, ["device is -1"]),
        ({"batch": -1}, ["batch is -1", "0 to 65535"]),
        ({"batch": 65536}, ["batch is 65536", "0 to 65535"]),
        ({"seqlen_q": -5}, ["seqlen_q is -5"]),
        ({"seqlen_k": (1 << 29) + 1}, ["seqlen_k is 536870913", "536870912"]),
        ({"heads_q": 0}, ["heads_q is 0", "1 to 65535"]),
        ({"heads_k": 0}, ["heads_k is 0", "1 to 4"]),
        ({"heads_k": 8}, ["heads_k is 8", "1 to 4"]),
        ({"heads_k": 3}, ["heads_q is 4 and heads_k is 3", "divides"]),
        ({"head_dim": 0}, ["head_dim is 0", "multiples of 8 from 8 to 256"]),
        ({"head_dim": 65}, ["head_dim is 65", "multiples of 8"]),
        ({"head_dim": 264}, ["head_dim is 264", "8 to 256"]),
        ({"batch": 60000, "heads_q": 60000, "heads_k": 1}, ["batch * heads_q * seqlen_q is 460800000000", "2^31"]),
        ({"scale": NAN}, ["scale is nan"]),
        ({"scale": -1.0}, ["scale is -1", "1 / sqrt(head_dim)"]),
        ({"scale": float("inf")}, ["scale is inf"]),
        ({"softcap": NAN}, ["softcap is nan"]),
        ({"softcap": -2.0}, ["softcap is -2"]),
        ({"dropout": 1.0}, ["dropout is 1", "not including, 1"]),
        ({"dropout": NAN}, ["dropout is nan"]),
        ({"num_splits": -1}, ["num_splits is -1", "0 to 128"]),
        ({"num_splits": 129}, ["num_splits is 129", "0 to 128"]),
        ({"window_left": 5}, ["window_left is 5", "no FA_FLAG_WINDOW_LEFT"]),
        ({"window_right": 5}, ["window_right is 5", "no FA_FLAG_WINDOW_RIGHT"]),
        ({"window_left": -1, "flags": Flag.WINDOW_LEFT}, ["window_left is -1", "0 and up"]),
        ({"window_right": -1, "flags": Flag.WINDOW_RIGHT}, ["window_right is -1", "0 and up"]),
        ({"q__data": None}, ["q.data is NULL", "batch 2 x 128 rows x 4 heads"]),
        ({"k__data": None}, ["k.data is NULL"]),
        ({"v__data": None}, ["v.data is NULL"]),
        ({"o__data": None}, ["o.data is NULL"]),
        ({"lse": None}, ["lse is NULL", "batch 2 x 4 heads x 128 rows of float"]),
        ({"lse": 0x50002}, ["lse is 0x50002", "4 bytes"]),
        ({"q__data": 0x10008}, ["q.data is 0x10008", "16 bytes"]),
        ({"o__data": 0x40002}, ["o.data is 0x40002", "16 bytes"]),
        ({"k__row_stride": 68}, ["k.row_stride is 68", "multiples of 8"]),
        ({"v__head_stride": -64}, ["v.head_stride is -64", "0 to 2^46"]),
        ({"q__batch_stride": 1 << 47}, ["q.batch_stride is 140737488355328", "2^46"]),
        ({"o__row_stride": 0}, ["o.row_stride is 0 over 128", "overlap"]),
        ({"alibi_slopes": 0x60001}, ["alibi_slopes is 0x60001", "4 bytes"]),
        ({"alibi_slopes": 0x60000, "alibi_batch_stride": -1}, ["alibi_batch_stride is -1"]),
        ({"workspace": 0x70008, "workspace_bytes": 64}, ["workspace is 0x70008", "16 bytes"]),
        ({"workspace_bytes": 64}, ["workspace is NULL and workspace_bytes is 64"]),
        ({"p_debug": 0x60000}, ["p_debug is set and dropout is 0"]),
        ({"dropout": -0.5}, ["dropout is -0.5", "0 up to"]),
        ({"total_q": 5}, ["total_q is 5 and cu_seqlens_q is NULL"]),
        ({"total_k": 5}, ["total_k is 5 and cu_seqlens_k is NULL"]),
        ({"cu_seqlens_q": 0x60000}, ["cu_seqlens_q is set and cu_seqlens_k is NULL", "both or none"]),
        ({"cu_seqlens_k": 0x60000}, ["cu_seqlens_k is set and cu_seqlens_q is NULL", "both or none"]),
        ({**PACKED, "cu_seqlens_q": 0x60002}, ["cu_seqlens_q is 0x60002", "4 bytes"]),
        ({**PACKED, "cu_seqlens_k": 0x60001}, ["cu_seqlens_k is 0x60001", "4 bytes"]),
        ({**PACKED, "total_q": -1}, ["total_q is -1", "0 to 2147483647"]),
        ({**PACKED, "total_k": 1 << 31}, ["total_k is 2147483648", "0 to 2147483647"]),
        ({**PACKED, "total_q": 1 << 30}, ["heads_q * total_q is 4294967296", "2^31"]),
        ({**PACKED, "lse": None}, ["lse is NULL", "4 heads x 9 rows of float"]),
        ({**PACKED, "q__data": None}, ["q.data is NULL", "batch 1 x 9 rows x 4 heads"]),
        ({**PACKED, "o__row_stride": 0}, ["o.row_stride is 0 over 9"]),
        ({**PACKED, "seqused_k": 0x60003}, ["seqused_k is 0x60003", "4 bytes"]),
        ({**PACKED, "leftpad_k": 0x60003}, ["leftpad_k is 0x60003", "4 bytes"]),
        ({**PACKED, "cache_seqlens": 0x60000}, ["cache_seqlens is set and so is cu_seqlens_q", "not packed"]),
        ({**PACKED, "cache_batch_idx": 0x60000}, ["cache_batch_idx is set and so is cu_seqlens_q"]),
        ({**PACKED, "k_new__data": 0x60000}, ["k_new.data is set and so is cu_seqlens_q"]),
        ({**PACKED, "rotary_cos": 0x60000}, ["rotary_cos is set and so is cu_seqlens_q"]),
        ({"seqused_k": 0x60000}, ["seqused_k is set and cu_seqlens_k is NULL", "use cache_seqlens"]),
        ({"leftpad_k": 0x60000}, ["leftpad_k is set and cache_seqlens is NULL"]),
        ({"page_size": 256}, ["page_size is 256 and block_table is NULL"]),
        ({"block_table_stride": 4}, ["block_table_stride is 4 and block_table is NULL"]),
        ({"block_table": 0x60000}, ["page_size is 0; allowed: 1 to"]),
        ({"block_table": 0x60000, "page_size": -256}, ["page_size is -256"]),
        ({"block_table": 0x60000, "page_size": 256, "block_table_stride": -1}, ["block_table_stride is -1"]),
        ({"block_table": 0x60002, "page_size": 256}, ["block_table is 0x60002", "4 bytes"]),
        ({"block_table": 0x60000, "page_size": 256, "k__batch_stride": 4}, ["k.batch_stride is 4", "multiples of 8"]),
        ({"cache_seqlens": 0x60001}, ["cache_seqlens is 0x60001", "4 bytes"]),
        ({"cache_batch_idx": 0x60001}, ["cache_batch_idx is 0x60001", "4 bytes"]),
        ({**APPEND, "seqlen_new": -1}, ["seqlen_new is -1"]),
        ({**APPEND, "seqlen_new": 0}, ["k_new.data is set and seqlen_new is 0"]),
        ({**APPEND, "seqlen_new": 129}, ["seqlen_new is 129", "1 to 128"]),
        ({**APPEND, "seqlen_q": 129}, ["seqlen_q is 129", "1 to 128"]),
        ({**APPEND, "seqlen_q": 0}, ["seqlen_q is 0", "1 to 128"]),
        ({**APPEND, "k_new__data": None}, ["v_new.data is set and k_new.data is NULL"]),
        ({**APPEND, "v_new__data": None}, ["k_new.data is set and v_new.data is NULL"]),
        ({"seqlen_new": 3}, ["seqlen_new is 3 and k_new.data is NULL"]),
        ({**APPEND, "cache_seqlens": None}, ["k_new is set and cache_seqlens is NULL"]),
        ({**APPEND, "k_new__row_stride": 3}, ["k_new.row_stride is 3"]),
        ({**APPEND, "v_new__data": 0x60008}, ["v_new.data is 0x60008", "16 bytes"]),
        ({**APPEND, "k__row_stride": 0}, ["k.row_stride is 0 over 128", "overlap"]),
        ({**ROTARY, "rotary_sin": None}, ["rotary_cos is set and rotary_sin is NULL"]),
        ({**ROTARY, "rotary_cos": None}, ["rotary_sin is set and rotary_cos is NULL"]),
        ({**ROTARY, "rotary_dim": 24}, ["rotary_dim is 24", "multiples of 16 from 16 to head_dim, 64"]),
        ({**ROTARY, "rotary_dim": 80}, ["rotary_dim is 80"]),
        ({**ROTARY, "rotary_seqlen": 127}, ["rotary_seqlen is 127", "128 to 2147483647"]),
        ({**ROTARY, "rotary_cos": 0x60008}, ["rotary_cos is 0x60008", "16 bytes"]),
        ({"rotary_dim": 16}, ["rotary_dim is 16 and rotary_cos is NULL"]),
        ({"rotary_seqlen": 16}, ["rotary_seqlen is 16 and rotary_cos is NULL"]),
        ({"rotary_cos": 0x60000, "rotary_sin": 0x60000}, ["rotary_cos is set and k_new is not"]),
        ({"dropout": 0.1}, ["rng_state is NULL", "for fa_bwd"]),
        ({"dropout": 0.1, "rng_state": 0x60004}, ["rng_state is 0x60004", "8 bytes"]),
        ({"dropout": 0.1, "rng_state": 0x60000, "p_debug": 0x60008}, ["p_debug is 0x60008", "16 bytes"]),
        ({"dropout": 0.1, "seed_ptr": 0x60000}, ["seed_ptr is set and offset_ptr is NULL"]),
        ({"dropout": 0.1, "offset_ptr": 0x60000}, ["offset_ptr is set and seed_ptr is NULL"]),
    ],
)
def test_a_wrong_argument_is_named_with_its_value_and_what_is_allowed(library, fields, fragments) -> None:
    answer = library.fwd(forward_args(**fields))  # type: ignore[arg-type]
    assert answer.status is Status.INVALID
    assert all(fragment in answer.text for fragment in fragments), answer.text


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"dtype": Dtype.E4M3}, ["dtype is 3 (FA_DTYPE_E4M3), which is for family fa3", "--families all,fa3"]),
        ({**DROPOUT, "softcap": 2.0}, ["dropout is 0.1 and softcap is 2"]),
        ({**DROPOUT, "num_splits": 2}, ["num_splits is 2 and dropout is 0.1"]),
        ({**DROPOUT, "cache_seqlens": 0x60000}, ["dropout is 0.1 and cache_seqlens is set"]),
        ({**DROPOUT, "cache_batch_idx": 0x60000}, ["dropout is 0.1 and cache_batch_idx is set"]),
        ({**DROPOUT, "block_table": 0x60000, "page_size": 256, **PACKED}, ["dropout is 0.1 and block_table is set"]),
        ({"leftpad_k": 0x60000, "block_table": 0x60000, "page_size": 256, **PACKED}, ["leftpad_k and block_table are set"]),
        ({"cache_batch_idx": 0x60000, "block_table": 0x60000, "page_size": 256}, ["cache_batch_idx and block_table are set"]),
        ({"num_splits": 2, **PACKED}, ["num_splits is 2 and cu_seqlens_q is set", "leave num_splits 0"]),
        (
            {**DROPOUT, "p_debug": 0x60000, "seqlen_q": 32_768, "seqlen_k": 32_768},
            ["batch * heads_q = 8 times 1073741824 probabilities", "less than 2^31"],
        ),
    ],
)  # fmt: skip
def test_what_no_kernel_of_upstream_does_is_refused(library, fields, fragments) -> None:
    assert_unsupported_everywhere(library, fields, fragments)


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        (
            {"head_dim": 128, "dtype": Dtype.FP16, "flags": Flag.CAUSAL},
            [
                "head dim 128 fp16 causal forward is not in this library (it has: bf16 64)",
                "flashdepot get --passes fwd --head-dims 128 --dtypes fp16",
            ],
        ),
        ({"head_dim": 72}, ["head dim 96 bf16 forward is not in this library", "--head-dims 96"]),
        ({"head_dim": 40}, ["head_dim is 40, which runs in the kernels for 64", "--features uneven_k"]),
        ({"alibi_slopes": 0x60000}, ["alibi_slopes is set", "without alibi", "--features alibi"]),
        ({"softcap": 30.0}, ["softcap is 30", "without softcap", "--features softcap"]),
        (
            {"flags": Flag.WINDOW_LEFT, "window_left": 7, "softcap": 5.0},
            ["softcap is 5", "--head-dims 64 --dtypes bf16 --features softcap,local"],
        ),
        ({"flags": Flag.WINDOW_RIGHT, "window_right": 3}, ["ends short of the 128 keys", "--features local"]),
        ({"num_splits": 2}, ["head dim 64 bf16 split-KV forward", "(it has: none)", "--passes fwd,splitkv"]),
        ({"cache_batch_idx": 0x60000}, ["split-KV forward (cache_batch_idx is set) is not in", "--passes fwd,splitkv"]),
        ({"block_table": 0x60000, "page_size": 256}, ["split-KV forward (block_table is set)"]),
        (APPEND, ["split-KV forward (k_new is set)"]),
        ({"dropout": 0.1, "rng_state": 0x60000}, ["dropout is 0.1", "without dropout", "--features dropout"]),
    ],
)
def test_what_is_not_compiled_in_comes_with_the_command_that_builds_it(library, fields, fragments) -> None:
    assert_unsupported_everywhere(library, fields, fragments)


def test_a_window_that_reaches_every_key_needs_no_feature(library) -> None:
    both = Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT
    args = forward_args(flags=both, window_left=128, window_right=500)
    assert library.supports(-1, args).status is Status.OK


def test_a_wrong_argument_is_reported_before_what_is_not_compiled_in(library) -> None:
    assert library.fwd(forward_args(head_dim=128, lse=None)).status is Status.INVALID


def test_supports_reads_no_buffer(library) -> None:
    args = forward_args(q__data=None, k__row_stride=3, lse=None, device=-7, workspace_bytes=5)
    assert library.supports(-1, args).status is Status.OK
    assert library.supports(-2, args).status is Status.INVALID


def test_workspace_needs_somewhere_to_write_the_bytes(library) -> None:
    assert library.c.fa_fwd_workspace(forward_args(), None, None) == Status.INVALID
    assert "bytes is NULL" in library.last_error()


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
        ({"softmax_d": None, "sink": 0x180000, "d_sink": 0x190000}, ["softmax_d is NULL", "seqlen_q up to 128s"]),
        (
            {**PACKED, "softmax_d": None, "sink": 0x180000, "d_sink": 0x190000},
            ["softmax_d is NULL", "total_q + 128 * batch"],
        ),
        ({"softmax_d": 0xA0002}, ["softmax_d is 0xa0002"]),
        ({"workspace": 0x70000004}, ["workspace is 0x70000004", "16 bytes"]),
        ({"workspace": None}, ["workspace is NULL and workspace_bytes is"]),
        ({"alibi_slopes": 0x60002}, ["alibi_slopes is 0x60002"]),
        ({"alibi_slopes": 0x60000, "alibi_batch_stride": -4}, ["alibi_batch_stride is -4"]),
        ({"seqlen_q": 0, "dk__data": None}, ["dk.data is NULL"]),
        ({"seqlen_k": 0, "dq__data": None}, ["dq.data is NULL"]),
    ],
)
def test_a_wrong_argument_of_the_backward_pass_is_named_as_well(library, fields, fragments) -> None:
    answer = library.bwd(backward_args(**fields))  # type: ignore[arg-type]
    assert answer.status is Status.INVALID
    assert all(fragment in answer.text for fragment in fragments), answer.text


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        (
            {},
            [
                "head dim 64 bf16 backward is not in this library (it has: none)",
                "flashdepot get --passes fwd,bwd --head-dims 64 --dtypes bf16",
            ],
        ),
        ({"dtype": Dtype.E4M3}, ["dtype is 3 (FA_DTYPE_E4M3)"]),
        ({"softcap": 1.0, "dropout": 0.5, "rng_state": 0x60000}, ["dropout is 0.5 and softcap is 1"]),
    ],
)
def test_a_backward_pass_that_no_kernel_runs_is_not_called_wrong(library, fields, fragments) -> None:
    args = backward_args(**fields)
    for answer in (library.bwd(args), library.bwd_supports(-1, args), library.bwd_workspace(args)[0]):
        assert answer.status is Status.UNSUPPORTED
        assert all(fragment in answer.text for fragment in fragments), answer.text


def test_backward_workspace_needs_somewhere_to_write_the_bytes(library) -> None:
    assert library.c.fa_bwd_workspace(backward_args(), None) == Status.INVALID
    assert "bytes is NULL" in library.last_error()
