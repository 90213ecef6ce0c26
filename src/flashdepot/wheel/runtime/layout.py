"""The structs and constants of flash_attention.h. Written by scripts/renew_abi.py."""

FP16 = 1
BF16 = 2
E4M3 = 3
CAUSAL = 1
WINDOW_LEFT = 2
WINDOW_RIGHT = 4
ROTARY_INTERLEAVED = 8
DETERMINISTIC = 16
EMPTY_LSE_NEG_INF = 32

_TENSOR = (
    ("data", "P"),
    ("batch_stride", "q"),
    ("row_stride", "q"),
    ("head_stride", "q"),
    ("reserved0", "8x"),
    ("reserved1", "8x"),
)


def _fields(table: str) -> tuple[tuple[str, str], ...]:
    """Each field and its code in module struct. A line has a code and the names of the fields that have it."""
    found = []
    for code, *names in map(str.split, table.strip().splitlines()):
        for name in names:
            found += [(f"{name}.{part}", of) for part, of in _TENSOR] if code == "tensor" else [(name, code)]
    return tuple(found)


FORWARD_FIELDS = _fields("""
    I size flags
    i device dtype
    P stream
    i batch seqlen_q seqlen_k heads_q heads_k head_dim
    q total_q total_k
    f scale softcap dropout
    i num_splits window_left window_right
    tensor q k v o
    P lse workspace
    Q workspace_bytes
    P alibi_slopes
    q alibi_batch_stride
    P cu_seqlens_q cu_seqlens_k seqused_k leftpad_k block_table
    q block_table_stride
    i page_size seqlen_new
    tensor k_new v_new
    P cache_seqlens cache_batch_idx rotary_cos rotary_sin
    i rotary_dim rotary_seqlen
    Q seed offset
    P seed_ptr offset_ptr
    Q offset_intragraph
    P rng_state p_debug
    i family head_dim_v
    P sink seqused_q
    i attention_chunk out_dtype
    tensor qv
    P q_descale k_descale v_descale
    q descale_batch_stride descale_head_stride
""")

BACKWARD_FIELDS = _fields("""
    I size flags
    i device dtype
    P stream
    i batch seqlen_q seqlen_k heads_q heads_k head_dim
    q total_q total_k
    f scale softcap dropout
    i family window_left window_right
    tensor q k v o d_o dq dk dv
    P lse softmax_d workspace
    Q workspace_bytes
    P alibi_slopes
    q alibi_batch_stride
    P cu_seqlens_q cu_seqlens_k rng_state d_lse sink d_sink
    i head_dim_v
    4x reserved0
""")
