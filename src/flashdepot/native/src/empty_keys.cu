#include <c10/cuda/CUDAException.h>

#include <algorithm>

#include "empty_keys.h"

namespace flashdepot {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // each thread strides over the rest
constexpr int kChunk = 8;                   // elements in 128 bits

__global__ void __launch_bounds__(kThreads) empty_keys_kernel(const EmptyKeys output) {
  const std::int64_t lse_count = std::int64_t{output.batch} * output.heads * output.rows;
  const int chunks_per_vector = output.head_dim / kChunk;
  const std::int64_t chunk_count = lse_count * chunks_per_vector;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < chunk_count;
       i += step) {
    if (i < lse_count) {
      output.lse[i] = __int_as_float(0x7f800000);  // +inf, whatever -use_fast_math makes of it
    }
    const std::int64_t vector = i / chunks_per_vector;  // (batch, rows, heads)
    const std::int64_t chunk = i - vector * chunks_per_vector;
    const std::int64_t row = vector / output.heads;  // (batch, rows)
    const std::int64_t head = vector - row * output.heads;
    const std::int64_t batch = row / output.rows;
    auto *data = static_cast<std::uint16_t *>(output.o.data) + batch * output.o.batch_stride +
                 (row - batch * output.rows) * output.o.row_stride + head * output.o.head_stride +
                 chunk * kChunk;
    *reinterpret_cast<uint4 *>(data) = uint4{0, 0, 0, 0};
  }
}

}  // namespace

void launch_empty_keys(const EmptyKeys &output, cudaStream_t stream) {
  const std::int64_t chunks =
      std::int64_t{output.batch} * output.heads * output.rows * (output.head_dim / kChunk);
  const std::int64_t blocks = std::min((chunks + kThreads - 1) / kThreads, kMostBlocks);
  empty_keys_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(output);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace flashdepot
