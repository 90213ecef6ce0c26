#include "fa4/statistics.h"

#include "error.h"
#include "own_kernel.cuh"
#include "problem.h"

namespace flashdepot::fa4 {

// A packed sequence starts at its first row and a tile for each sequence before it, rounded down
// (seqlen_info.py of flash-attn-4 4.0.0b36, padded_offset_q), and in flash_attention.h at its first
// row and 128 for each.
__global__ void __launch_bounds__(kThreads) statistics_kernel(const Statistics copy) {
  const std::int64_t count = std::int64_t{copy.batch} * copy.heads * copy.rows;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / copy.rows;  // (batch, heads)
    const std::int64_t row = i - vector * copy.rows;
    if (copy.cu_seqlens_q == nullptr) {
      const std::int64_t rows = (copy.rows + kRounding - 1) / kRounding * kRounding;
      copy.delivered[vector * rows + row] = copy.padded[vector * copy.columns + row];
      continue;
    }
    const std::int64_t batch = vector / copy.heads;
    const std::int64_t head = vector - batch * copy.heads;
    const std::int64_t first = copy.cu_seqlens_q[batch];
    if (first + row < copy.cu_seqlens_q[batch + 1]) {
      const std::int64_t from = (first + batch * copy.tile) / copy.tile * copy.tile + row;
      const std::int64_t to = first + kRounding * batch + row;
      copy.delivered[head * (copy.total + kRounding * copy.batch) + to] =
          copy.padded[head * copy.columns + from];
    }
  }
}

__global__ void __launch_bounds__(kThreads) zero_sums_kernel(const Sums sums) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const std::int64_t count = sums.bytes / sizeof(uint4);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    static_cast<uint4 *>(sums.at)[i] = uint4{0, 0, 0, 0};
  }
}

fa_status launch_zeros(const Sums &sums, cudaStream_t stream) {
  zero_sums_kernel<<<blocks_for(sums.bytes / sizeof(uint4)), kThreads, 0, stream>>>(sums);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status launch_statistics(const Statistics &statistics, cudaStream_t stream) {
  const std::int64_t count = std::int64_t{statistics.batch} * statistics.heads * statistics.rows;
  statistics_kernel<<<blocks_for(count), kThreads, 0, stream>>>(statistics);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot::fa4
