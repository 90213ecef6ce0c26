#include "error.h"
#include "lengths.h"
#include "own_kernel.cuh"

namespace flashdepot {

__global__ void __launch_bounds__(kThreads) lengths_kernel(const Lengths l) {
  const int step = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < l.batch; i += step) {
    l.lengths[i] = l.cu_seqlens == nullptr ? l.all : l.cu_seqlens[i + 1] - l.cu_seqlens[i];
  }
}

fa_status launch_lengths(const Lengths &lengths, cudaStream_t stream) {
  lengths_kernel<<<blocks_for(lengths.batch), kThreads, 0, stream>>>(lengths);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
