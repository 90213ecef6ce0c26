#include "error.h"
#include "own_kernel.cuh"
#include "zeros.h"

namespace flashdepot {

__global__ void __launch_bounds__(kThreads) zeros_kernel(const Gradient gradient) {
  const std::int64_t count = chunks_of(gradient);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    *chunk_at(gradient, i) = uint4{0, 0, 0, 0};
  }
}

fa_status launch_zeros(const Gradient &gradient, cudaStream_t stream) {
  zeros_kernel<<<blocks_for(chunks_of(gradient)), kThreads, 0, stream>>>(gradient);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
