/* run_mha_v3 as candle-flash-attn-v3 0.11.1 declares it. It is in the archive of run_mha's 45 arguments, so that
 * one copy of the kernels serves both crates of a program. use_gqa_packing chooses between kernels of
 * candle's own that compute the same, and the semaphore is theirs. */
#include "mha_call.h"

void run_mha_v3(
    void *q_ptr, void *k_ptr, void *v_ptr, void *o_ptr, void *softmax_lse_ptr, void *alibi_slopes_ptr,
    int32_t *tile_count_semaphore_ptr, int32_t *cu_seqlens_q_ptr, int32_t *cu_seqlens_k_ptr,
    uint32_t q_batch_stride, uint32_t k_batch_stride, uint32_t v_batch_stride, uint32_t o_batch_stride,
    uint32_t alibi_slopes_batch_stride, uint32_t q_row_stride, uint32_t k_row_stride,
    uint32_t v_row_stride, uint32_t o_row_stride, uint32_t q_head_stride, uint32_t k_head_stride,
    uint32_t v_head_stride, uint32_t o_head_stride, uint32_t b, uint32_t h, uint32_t h_k, uint32_t d,
    uint32_t d_rounded, float softmax_scale, uint32_t seqlen_q, uint32_t seqlen_k,
    uint32_t seqlen_q_rounded, uint32_t seqlen_k_rounded, int is_bf16, int is_causal, int unpadded_lse,
    int use_gqa_packing, int window_size_left, int window_size_right, uint32_t total_q,
    uint32_t total_k, void *stream_ptr) {
  mha_call call;
  (void)tile_count_semaphore_ptr;
  (void)d_rounded;
  (void)seqlen_q_rounded;
  (void)seqlen_k_rounded;
  (void)use_gqa_packing;
  MHA_COMMON_ARGUMENTS(call);
  call.arguments = 45;
  call.is_v3 = 1;
  call.unpadded_lse = unpadded_lse;
  call.total_q = total_q;
  call.total_k = total_k;
  call.stream = stream_ptr;
  flashdepot_mha_run(&call);
}
