/* candle's own run_mha, and a CUDA runtime that may remember an error: writes down that it was called. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int32_t candle_calls, candle_page, candle_prefixes;
static int error;

int cudaGetLastError(void) {
  const int was = error;
  error = 0;
  return was;
}

void flashdepot_candle_run_mha(
    void *q, void *k, void *v, void *o, void *lse, void *alibi, int32_t *cu_q, int32_t *cu_k, uint32_t n1,
    uint32_t n2, uint32_t n3, uint32_t n4, uint32_t n5, uint32_t n6, uint32_t n7, uint32_t n8, uint32_t n9,
    uint32_t n10, uint32_t n11, uint32_t n12, uint32_t n13, uint32_t n14, uint32_t n15, uint32_t n16,
    uint32_t n17, uint32_t n18, float scale, uint32_t n19, uint32_t n20, uint32_t n21, uint32_t n22,
    uint32_t n23, int n24, int n25, int n26, int n27, int n28, float softcap, int32_t *block_table,
    uint32_t n29, int page_size, int32_t *prefixes, uint32_t n30, int count, void *stream) {
  (void)q, (void)k, (void)v, (void)o, (void)lse, (void)alibi, (void)cu_q, (void)cu_k, (void)n1, (void)n2;
  (void)n3, (void)n4, (void)n5, (void)n6, (void)n7, (void)n8, (void)n9, (void)n10, (void)n11, (void)n12;
  (void)n13, (void)n14, (void)n15, (void)n16, (void)n17, (void)n18, (void)scale, (void)n19, (void)n20;
  (void)n21, (void)n22, (void)n23, (void)n24, (void)n25, (void)n26, (void)n27, (void)n28, (void)softcap;
  (void)block_table, (void)n29, (void)prefixes, (void)n30;
  candle_calls += 1;
  candle_page = page_size;
  candle_prefixes = count;
  error = stream == (void *)7 ? 98 : 0;
}
