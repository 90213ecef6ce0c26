#include "error.h"
#include "fa2/gathering.h"
#include "own_kernel.cuh"

namespace flashdepot::fa2 {

// A row of blocks for each sequence, a thread for each 128 bits.
__global__ void __launch_bounds__(kThreads) gathering_kernel(const Gathering g) {
  const auto batch = static_cast<std::int64_t>(blockIdx.y);
  const std::int64_t length = g.lengths == nullptr ? g.rows : g.lengths[batch];
  const std::int64_t rows = length < g.rows ? length : g.rows;
  const std::int64_t source = g.batch_idx == nullptr ? batch : g.batch_idx[batch];
  const int chunks = g.to_dim / kChunk;
  const std::int64_t count = rows * g.heads * chunks;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / chunks;  // (rows, heads)
    const std::int64_t chunk = i - vector * chunks;
    const std::int64_t row = vector / g.heads;
    const std::int64_t head = vector - row * g.heads;
    std::int64_t from_batch = source;
    std::int64_t from_row = row;
    if (g.block_table != nullptr) {
      const std::int64_t page = row / g.page_size;
      from_batch = g.block_table[batch * g.block_table_stride + page];
      from_row = row - page * g.page_size;
    }
    const auto *from = static_cast<const std::uint16_t *>(g.from.data) +
                       from_batch * g.from.batch_stride + from_row * g.from.row_stride +
                       head * g.from.head_stride + chunk * kChunk;
    auto *to = static_cast<std::uint16_t *>(g.to.data) + batch * g.to.batch_stride +
               row * g.to.row_stride + head * g.to.head_stride + chunk * kChunk;
    *reinterpret_cast<uint4 *>(to) = chunk < g.from_dim / kChunk
                                         ? *reinterpret_cast<const uint4 *>(from)
                                         : uint4{0, 0, 0, 0};
  }
}

fa_status launch_gathering(const Gathering &gathering, cudaStream_t stream) {
  const std::int64_t chunks =
      std::int64_t{gathering.rows} * gathering.heads * (gathering.to_dim / kChunk);
  const dim3 grid(blocks_for(chunks), static_cast<unsigned>(gathering.batch));
  gathering_kernel<<<grid, kThreads, 0, stream>>>(gathering);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

__global__ void __launch_bounds__(kThreads)
    starts_kernel(std::int32_t *starts, const std::int32_t batch, const std::int32_t rows) {
  const int step = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i <= batch;
       i += step) {
    starts[i] = i * rows;
  }
}

fa_status launch_starts(std::int32_t *starts, std::int32_t batch, std::int32_t rows,
                        cudaStream_t stream) {
  starts_kernel<<<blocks_for(batch + 1), kThreads, 0, stream>>>(starts, batch, rows);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot::fa2
