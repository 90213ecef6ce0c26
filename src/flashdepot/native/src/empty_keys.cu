#include "empty_keys.h"
#include "error.h"
#include "own_kernel.cuh"

namespace flashdepot {

__device__ inline bool is_of_a_sequence(const EmptyKeys &output, std::int64_t row) {
  return output.cu_seqlens == nullptr || (row >= output.cu_seqlens[0] &&
                                          row < output.cu_seqlens[output.sequences]);
}

__global__ void __launch_bounds__(kThreads) empty_keys_kernel(const EmptyKeys output) {
  const Gradient o{output.o, output.batch, output.rows, output.heads, output.head_dim};
  const std::int64_t lse_count = std::int64_t{output.batch} * output.heads * output.rows;
  const std::int64_t count = chunks_of(o);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    if (i < lse_count && is_of_a_sequence(output, i % output.rows)) {
      output.lse[i] = __int_as_float(0x7f800000);  // +inf, whatever -use_fast_math makes of it
    }
    const std::int64_t row = i / (output.head_dim / kChunk) / output.heads % output.rows;
    if (is_of_a_sequence(output, row)) {
      *chunk_at(o, i) = uint4{0, 0, 0, 0};
    }
  }
}

fa_status launch_empty_keys(const EmptyKeys &output, cudaStream_t stream) {
  const Gradient o{output.o, output.batch, output.rows, output.heads, output.head_dim};
  empty_keys_kernel<<<blocks_for(chunks_of(o)), kThreads, 0, stream>>>(output);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
