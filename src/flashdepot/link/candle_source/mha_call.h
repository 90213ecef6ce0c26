/* What the argument lists of run_mha and run_mha_v3 have in common, under one set of names. */
#ifndef FLASHDEPOT_MHA_CALL_H
#define FLASHDEPOT_MHA_CALL_H

#include <flash_attention.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define MHA_INTERNAL
#else
#define MHA_INTERNAL __attribute__((visibility("hidden")))
#endif

typedef struct mha_strides {
  uint32_t batch, row, head;
} mha_strides;

static inline mha_strides mha_strides_of(uint32_t batch, uint32_t row, uint32_t head) {
  const mha_strides strides = {batch, row, head};
  return strides;
}

/* A field that a list has not got is 0, which is the value it then has. */
typedef struct mha_call {
  int arguments; /* 35, 37 or 45; 45 of run_mha_v3 too, which has all that counts of them */
  int is_v3;
  void *q, *k, *v, *o, *lse, *alibi_slopes;
  const int32_t *cu_seqlens_q, *cu_seqlens_k;
  mha_strides q_strides, k_strides, v_strides, o_strides;
  uint32_t alibi_batch_stride;
  uint32_t b, h, h_k, d, seqlen_q, seqlen_k;
  uint32_t total_q; /* of 45 arguments */
  uint32_t total_k; /* of run_mha_v3 */
  float softmax_scale;
  int is_bf16, is_causal, unpadded_lse, window_left, window_right;
  float softcap;
  const int32_t *block_table;
  uint32_t block_table_batch_stride;
  int page_size;
  const int32_t *prefix_ranges;
  int max_prefix_ranges;
  void *stream;
} mha_call;

/* What every list has, under the names that candle gives it; the rest is 0. */
#define MHA_COMMON_ARGUMENTS(call)                                                 \
  do {                                                                             \
    memset(&(call), 0, sizeof(call));                                              \
    (call).q = q_ptr;                                                              \
    (call).k = k_ptr;                                                              \
    (call).v = v_ptr;                                                              \
    (call).o = o_ptr;                                                              \
    (call).lse = softmax_lse_ptr;                                                  \
    (call).alibi_slopes = alibi_slopes_ptr;                                        \
    (call).cu_seqlens_q = cu_seqlens_q_ptr;                                        \
    (call).cu_seqlens_k = cu_seqlens_k_ptr;                                        \
    (call).q_strides = mha_strides_of(q_batch_stride, q_row_stride, q_head_stride); \
    (call).k_strides = mha_strides_of(k_batch_stride, k_row_stride, k_head_stride); \
    (call).v_strides = mha_strides_of(v_batch_stride, v_row_stride, v_head_stride); \
    (call).o_strides = mha_strides_of(o_batch_stride, o_row_stride, o_head_stride); \
    (call).alibi_batch_stride = alibi_slopes_batch_stride;                         \
    (call).b = b;                                                                  \
    (call).h = h;                                                                  \
    (call).h_k = h_k;                                                              \
    (call).d = d;                                                                  \
    (call).softmax_scale = softmax_scale;                                          \
    (call).seqlen_q = seqlen_q;                                                    \
    (call).seqlen_k = seqlen_k;                                                    \
    (call).is_bf16 = is_bf16;                                                      \
    (call).is_causal = is_causal;                                                  \
    (call).window_left = window_size_left;                                         \
    (call).window_right = window_size_right;                                       \
  } while (0)

/* Carry a call out, or report why not as flash_attention_candle.h says. */
MHA_INTERNAL void flashdepot_mha_run(const mha_call *call);

#if defined(FLASHDEPOT_CANDLE_KERNELS)
/* Whether a call is one that only kernels of candle's own can do, or that those in this archive do better. */
MHA_INTERNAL int flashdepot_is_for_candle(const mha_call *call);

/* Whether those in this archive can do it. As flashdepot_mha_arguments. */
MHA_INTERNAL fa_status flashdepot_candle_checks(const mha_call *call, char *text, size_t text_size);

/* Before and after such a call: whether to make it, and how it went. */
MHA_INTERNAL int flashdepot_candle_begins(const mha_call *call);
MHA_INTERNAL void flashdepot_candle_ended(const mha_call *call);
#endif

/* The call as arguments of fa_fwd, without device and workspace. Returns a fa_status; unless it is
 * FA_STATUS_OK the reason is in text. */
MHA_INTERNAL fa_status flashdepot_mha_arguments(const mha_call *call, fa_fwd_args *args, char *text,
                                                size_t text_size);

/* What every call is held to, whichever kernels it goes to. As flashdepot_mha_arguments. */
MHA_INTERNAL fa_status flashdepot_mha_checks(const mha_call *call, char *text, size_t text_size);

/* Bytes of o where it is one contiguous piece of known length; 0 for another. */
MHA_INTERNAL uint64_t flashdepot_mha_output_bytes(const mha_call *call);

#endif /* FLASHDEPOT_MHA_CALL_H */
