/* Which calls go to candle's own kernels, and whether those in this archive can do them. What they would
 * silently ignore, such as a window where they were compiled without windows, is refused. */
#include "mha_call.h"

#include <stdio.h>

/* Generated: HAS_ALIBI, HAS_SOFTCAP, HAS_LOCAL and HAS_UNEVEN_K, and CANDLE_KERNELS(X) with
 * X(paged, head_dim, is_bf16, is_causal) for each kernel file that was compiled. */
#include "candle_kernels.h"

typedef struct candle_kernel {
  int paged;
  uint32_t head_dim;
  int is_bf16, is_causal;
} candle_kernel;

#define ROW(paged, head_dim, is_bf16, is_causal) {paged, head_dim, is_bf16, is_causal},
static const candle_kernel compiled[] = {CANDLE_KERNELS(ROW)};

/* candle compiles its kernels for head dim 512 without ALiBi, softcap and windows. */
#define PLAIN_HEAD_DIM 512

static int has_prefixes(const mha_call *call) {
  return call->prefix_ranges != NULL && call->max_prefix_ranges > 0;
}

/* The head dim of the kernel that candle's run_mha takes. */
static uint32_t kernel_dim(const mha_call *call) {
  if (call->block_table == NULL || call->d > 256) {
    return PLAIN_HEAD_DIM;
  }
  return call->d <= 64 ? 64 : call->d <= 128 ? 128 : 256;
}

static fa_status check_layout(const mha_call *call, char *text, size_t size) {
  if (call->d > PLAIN_HEAD_DIM || call->d % 8 != 0) {
    snprintf(text, size, "d is %lu; allowed: multiples of 8 up to 512", (unsigned long)call->d);
    return FA_STATUS_UNSUPPORTED;
  }
  if (call->h_k == 0 || call->h % call->h_k != 0) {
    snprintf(text, size, "h is %lu and h_k %lu; allowed: multiples of h_k", (unsigned long)call->h,
             (unsigned long)call->h_k);
    return FA_STATUS_INVALID;
  }
  if (call->block_table == NULL) {
    if (!has_prefixes(call)) {
      return FA_STATUS_OK;
    }
    snprintf(text, size, "mm_prefix_ranges is set and block_table is NULL; allowed: with pages");
    return FA_STATUS_UNSUPPORTED;
  }
  if (call->cu_seqlens_q == NULL) {
    snprintf(text, size, "block_table is set and cu_seqlens_q is NULL; allowed: pages with a packed batch");
    return FA_STATUS_UNSUPPORTED;
  }
  if (call->page_size <= 0 || call->page_size % 32 != 0) {
    snprintf(text, size, "page_block_size is %d; candle's kernels read pages of multiples of 32 rows",
             call->page_size);
    return FA_STATUS_UNSUPPORTED;
  }
  return FA_STATUS_OK;
}

static fa_status check_features(const mha_call *call, uint32_t dim, char *text, size_t size) {
  const int plain = dim == PLAIN_HEAD_DIM;
  const int window = !call->is_causal && (call->window_left >= 0 || call->window_right >= 0);
  const struct {
    const char *name;
    int asked, compiled;
  } features[] = {{"ALiBi", call->alibi_slopes != NULL, HAS_ALIBI && !plain},
                  {"softcap", call->softcap > 0, HAS_SOFTCAP && !plain},
                  {"windows other than causal", window, HAS_LOCAL && !plain},
                  {"head dims below its own", call->d != dim, HAS_UNEVEN_K}};
  size_t i;
  for (i = 0; i < sizeof features / sizeof features[0]; ++i) {
    if (features[i].asked && !features[i].compiled) {
      snprintf(text, size, "candle's kernel for head dim %lu is without %s%s", (unsigned long)dim,
               features[i].name, plain && i < 3 ? " in candle itself" : ", as the library here");
      return FA_STATUS_UNSUPPORTED;
    }
  }
  return FA_STATUS_OK;
}

int flashdepot_is_for_candle(const mha_call *call) {
  char why_not[256];
  if (call->d > 256 || has_prefixes(call)) {
    return 1;
  }
  /* Pages that the library may have to copy: candle's kernel reads them where they lie, if it is there. */
  return call->block_table != NULL && call->page_size % 256 != 0 &&
         flashdepot_candle_checks(call, why_not, sizeof why_not) == FA_STATUS_OK;
}

fa_status flashdepot_candle_checks(const mha_call *call, char *text, size_t size) {
  const int paged = call->block_table != NULL;
  const uint32_t dim = kernel_dim(call);
  fa_status status = flashdepot_mha_checks(call, text, size);
  size_t i;
  if (status == FA_STATUS_OK) {
    status = check_layout(call, text, size);
  }
  if (status == FA_STATUS_OK) {
    status = check_features(call, dim, text, size);
  }
  if (status != FA_STATUS_OK) {
    return status;
  }
  for (i = 0; i < sizeof compiled / sizeof compiled[0]; ++i) {
    if (compiled[i].paged == paged && compiled[i].head_dim == dim &&
        compiled[i].is_bf16 == (call->is_bf16 != 0) && compiled[i].is_causal == (call->is_causal != 0)) {
      return FA_STATUS_OK;
    }
  }
  snprintf(text, size,
           "candle's kernel %shdim%lu_%s%s is not in this archive; add it: flashdepot link candle --write "
           "--candle-kernels all",
           paged ? "splitkv_" : "", (unsigned long)dim, call->is_bf16 ? "bf16" : "fp16",
           call->is_causal ? "_causal" : "");
  return FA_STATUS_UNSUPPORTED;
}
