#include "flash.h"

template <int Headdim>
__global__ void fill(Flash_fwd_params params) {
#ifndef FLASHATTENTION_DISABLE_LOCAL
  static_cast<__nv_bfloat16 *>(params.o_ptr)[threadIdx.x] = Headdim;
#endif
}

template <>
void run_mha_fwd_splitkv_paged_<__nv_bfloat16, 256, true>(Flash_fwd_params &params, cudaStream_t stream) {
  fill<256><<<1, 32, 0, stream>>>(params);
}
