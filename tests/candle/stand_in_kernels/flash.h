// What candle's flash.h declares, as far as its kernels and its flash_api.cu meet there.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

struct Flash_fwd_params {
  void *o_ptr;
  int d;
};

template <typename T, int Headdim, bool Is_causal>
void run_mha_fwd_(Flash_fwd_params &params, cudaStream_t stream);
template <typename T, int Headdim, bool Is_causal>
void run_mha_fwd_splitkv_paged_(Flash_fwd_params &params, cudaStream_t stream);
