/* run_mha as candle-flash-attn 0.11.0 declares it: 45 arguments. */
#include "mha_call.h"

/* Its name tells readers of an archive which list is in it. */
const int32_t fa_candle_arguments_45 = 45;

#if defined(FLASHDEPOT_CANDLE_KERNELS)
/* candle's own, under another name: flash_api.cu compiled with -Drun_mha=... */
void flashdepot_candle_run_mha(
    void *, void *, void *, void *, void *, void *, int32_t *, int32_t *, uint32_t, uint32_t,
    uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
    uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, float, uint32_t, uint32_t,
    uint32_t, uint32_t, uint32_t, int, int, int, int, int, float, int32_t *, uint32_t, int, int32_t *,
    uint32_t, int, void *);
#endif

void run_mha(
    void *q_ptr, void *k_ptr, void *v_ptr, void *o_ptr, void *softmax_lse_ptr,
    void *alibi_slopes_ptr, int32_t *cu_seqlens_q_ptr, int32_t *cu_seqlens_k_ptr,
    uint32_t q_batch_stride, uint32_t k_batch_stride, uint32_t v_batch_stride,
    uint32_t o_batch_stride, uint32_t alibi_slopes_batch_stride, uint32_t q_row_stride,
    uint32_t k_row_stride, uint32_t v_row_stride, uint32_t o_row_stride, uint32_t q_head_stride,
    uint32_t k_head_stride, uint32_t v_head_stride, uint32_t o_head_stride, uint32_t b, uint32_t h,
    uint32_t h_k, uint32_t d, uint32_t d_rounded, float softmax_scale, uint32_t seqlen_q,
    uint32_t seqlen_k, uint32_t seqlen_q_rounded, uint32_t seqlen_k_rounded, uint32_t total_q,
    int is_bf16, int is_causal, int unpadded_lse, int window_size_left, int window_size_right,
    float softcap, int32_t *block_table_ptr, uint32_t block_table_batch_stride,
    int page_block_size, int32_t *mm_prefix_ranges_ptr,
    uint32_t mm_prefix_range_batch_stride, int max_mm_prefix_ranges, void *stream_ptr) {
  mha_call call;
#if !defined(FLASHDEPOT_CANDLE_KERNELS)
  (void)d_rounded;
  (void)seqlen_q_rounded;
  (void)seqlen_k_rounded;
  (void)mm_prefix_range_batch_stride;
#endif
  MHA_COMMON_ARGUMENTS(call);
  call.arguments = 45;
  call.unpadded_lse = unpadded_lse;
  call.softcap = softcap;
  call.total_q = total_q;
  call.block_table = block_table_ptr;
  call.block_table_batch_stride = block_table_batch_stride;
  call.page_size = page_block_size;
  call.prefix_ranges = mm_prefix_ranges_ptr;
  call.max_prefix_ranges = max_mm_prefix_ranges;
  call.stream = stream_ptr;
#if defined(FLASHDEPOT_CANDLE_KERNELS)
  if (flashdepot_is_for_candle(&call)) {
    if (flashdepot_candle_begins(&call)) {
      flashdepot_candle_run_mha(
          q_ptr, k_ptr, v_ptr, o_ptr, softmax_lse_ptr, alibi_slopes_ptr, cu_seqlens_q_ptr,
          cu_seqlens_k_ptr, q_batch_stride, k_batch_stride, v_batch_stride, o_batch_stride,
          alibi_slopes_batch_stride, q_row_stride, k_row_stride, v_row_stride, o_row_stride,
          q_head_stride, k_head_stride, v_head_stride, o_head_stride, b, h, h_k, d, d_rounded,
          softmax_scale, seqlen_q, seqlen_k, seqlen_q_rounded, seqlen_k_rounded, total_q, is_bf16,
          is_causal, unpadded_lse, window_size_left, window_size_right, softcap, block_table_ptr,
          block_table_batch_stride, page_block_size, mm_prefix_ranges_ptr,
          mm_prefix_range_batch_stride, max_mm_prefix_ranges, stream_ptr);
      flashdepot_candle_ended(&call);
    }
    return;
  }
#endif
  flashdepot_mha_run(&call);
}
