/* run_mha, the function that candle-flash-attn calls, over flash_attention.h. C99 and C++. In the archive of
 * 45 arguments run_mha_v3 of candle-flash-attn-v3 0.11.1 is next to it, and what is said of 45 arguments
 * holds for it.
 *
 * candle gave one symbol three lists of arguments: 35 (0.5.1 to 0.8.1), 37 (0.8.2 to 0.10.2) and 45
 * (0.11.0). There is one archive for each, and a program links exactly one.
 *
 * What a call means
 * - q, k, v and o hold 16-bit elements with a contiguous last dimension; strides are in elements.
 * - With both cu_seqlens the batch is packed, else q, k, v and o have a batch dimension.
 * - A window of -1 is unbounded. is_causal goes with window_size_right 0 and a window_size_left
 * that reaches every key, which is what candle sends.
 * - softmax_lse is (b, h, seqlen_q), and (h, total_q) for a packed batch of 45 arguments. The
 * shorter lists do not say how many rows a packed batch has: there softmax_lse, of at least as many
 * floats as h * rows of q, is scratch. candle gives it to the kernels and drops it.
 * - d_rounded, seqlen_q_rounded and seqlen_k_rounded are ignored: the library rounds as its
 * own kernels need it.
 * - Keys and values are not split between blocks, as in candle's own kernels.
 * - Pages have any size. Those that the kernels cannot read where they lie are copied first.
 * - run_mha_v3 honours ALiBi slopes and windows, which candle's own kernels of that crate pass over.
 *
 * Streams
 * - 45 arguments: stream_ptr, as it is.
 * - 35 and 37 arguments name no stream. The work goes to the legacy default stream. candle's own
 *   kernels of these versions go to the calling thread's default stream; the legacy one waits for
 *   that one and for every other blocking stream, and they for it, so no order that held is lost.
 *   A stream made with cudaStreamNonBlocking (candle's CudaDevice::new_with_stream) is ordered with
 *   neither. For it, set FLASHDEPOT_CANDLE_SYNCHRONIZE=1: each call then begins and ends with
 *   cudaDeviceSynchronize.
 *
 * Errors
 * run_mha returns void, and its callers take what is in o for the result. After an error,
 * therefore, one line goes to stderr, fa_candle_last_status() says which error it was, and
 * - o is filled with NaN on the same stream, if o is contiguous and the arguments say how long it
 *   is; the program continues;
 * - otherwise, or if that fails too, or with FLASHDEPOT_CANDLE_ON_ERROR=abort: abort().
 *   (o is not contiguous, or the batch is packed and the list has 35 or 37 arguments.)
 *
 * A device allocation is made, and freed, on the stream where a page table needs a workspace; there
 * are no others. */
#ifndef FLASH_ATTENTION_CANDLE_H
#define FLASH_ATTENTION_CANDLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fa_status of this thread's last run_mha; FA_STATUS_OK before the first. */
int32_t fa_candle_last_status(void);

/* Text of this thread's last run_mha that failed, "" before the first. */
const char *fa_candle_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* FLASH_ATTENTION_CANDLE_H */
