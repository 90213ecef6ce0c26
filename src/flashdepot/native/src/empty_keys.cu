#include "empty_keys.h"
#include "error.h"
#include "own_kernel.cuh"

namespace flashdepot {

__global__ void __launch_bounds__(kThreads) empty_keys_kernel(const EmptyKeys output) {
  const Gradient o{output.o, output.batch, output.rows, output.heads, output.head_dim};
  const std::int64_t lse_count = std::int64_t{output.batch} * output.heads * output.rows;
  const std::int64_t count = chunks_of(o);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    if (i < lse_count) {
      output.lse[i] = __int_as_float(0x7f800000);  // +inf, whatever -use_fast_math makes of it
    }
    *chunk_at(o, i) = uint4{0, 0, 0, 0};
  }
}

fa_status launch_empty_keys(const EmptyKeys &output, cudaStream_t stream) {
  const Gradient o{output.o, output.batch, output.rows, output.heads, output.head_dim};
  empty_keys_kernel<<<blocks_for(chunks_of(o)), kThreads, 0, stream>>>(output);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
