#include "flash.h"

#include <cstdint>

extern "C" void run_mha(
    void *, void *, void *, void *o, void *, void *, int32_t *, int32_t *, uint32_t, uint32_t, uint32_t,
    uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
    uint32_t, uint32_t, uint32_t, uint32_t d, uint32_t, float, uint32_t, uint32_t, uint32_t, uint32_t,
    uint32_t, int is_bf16, int is_causal, int, int, int, float, int32_t *block_table, uint32_t, int,
    int32_t *, uint32_t, int, void *stream) {
  Flash_fwd_params params{o, static_cast<int>(d)};
  const auto on = static_cast<cudaStream_t>(stream);
  if (block_table != nullptr && is_bf16 && is_causal) {
    run_mha_fwd_splitkv_paged_<__nv_bfloat16, 256, true>(params, on);
  } else {
    run_mha_fwd_<__half, 512, false>(params, on);  // not among the kernels that are compiled
  }
}
