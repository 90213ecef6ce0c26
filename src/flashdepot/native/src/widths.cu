#include "error.h"
#include "own_kernel.cuh"
#include "widths.h"

namespace flashdepot {

__global__ void __launch_bounds__(kThreads) widths_kernel(const Widths c) {
  const int chunks = c.to_dim / kChunk;
  const std::int64_t count = c.batch * c.rows * c.heads * chunks;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / chunks;  // (batch, rows, heads)
    const std::int64_t chunk = i - vector * chunks;
    const std::int64_t of_batch = vector / c.heads;
    const std::int64_t head = vector - of_batch * c.heads;
    const std::int64_t batch = of_batch / c.rows;
    const std::int64_t row = of_batch - batch * c.rows;
    if (c.cu_seqlens != nullptr &&
        (row < c.cu_seqlens[0] || row >= c.cu_seqlens[c.sequences])) {
      continue;
    }
    const auto at = [&](const fa_tensor &tensor) {
      return reinterpret_cast<uint4 *>(static_cast<std::uint16_t *>(tensor.data) +
                                       batch * tensor.batch_stride + row * tensor.row_stride +
                                       head * tensor.head_stride + chunk * kChunk);
    };
    *at(c.to) = chunk < c.from_dim / kChunk ? *at(c.from) : uint4{0, 0, 0, 0};
  }
}

fa_status launch_widths(const Widths &copy, cudaStream_t stream) {
  const std::int64_t count = copy.batch * copy.rows * copy.heads * (copy.to_dim / kChunk);
  widths_kernel<<<blocks_for(count), kThreads, 0, stream>>>(copy);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
