#include "error.h"
#include "fa2/packed_lse.h"
#include "own_kernel.cuh"

namespace flashdepot::fa2 {

__global__ void __launch_bounds__(kThreads) packed_lse_kernel(const PackedLse copy) {
  const std::int64_t count = std::int64_t{copy.batch} * copy.heads * copy.rows;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / copy.rows;  // (batch, heads)
    const std::int64_t row = i - vector * copy.rows;
    const std::int64_t batch = vector / copy.heads;
    const std::int64_t head = vector - batch * copy.heads;
    const std::int64_t first = copy.cu_seqlens_q[batch];
    if (first + row < copy.cu_seqlens_q[batch + 1]) {
      copy.packed[head * copy.total_q + first + row] = copy.padded[i];
    }
  }
}

fa_status launch_packed_lse(const PackedLse &copy, cudaStream_t stream) {
  const std::int64_t count = std::int64_t{copy.batch} * copy.heads * copy.rows;
  packed_lse_kernel<<<blocks_for(count), kThreads, 0, stream>>>(copy);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot::fa2
