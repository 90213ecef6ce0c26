#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "gradients.h"

namespace flashdepot {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // each thread strides over the rest
constexpr int kChunk = 8;                   // elements in 128 bits
constexpr int kSums = 4;                    // running sums of one element

__device__ float to_float(__half value) { return __half2float(value); }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void from_float(float value, __half &result) { result = __float2half_rn(value); }
__device__ void from_float(float value, __nv_bfloat16 &result) {
  result = __float2bfloat16_rn(value);
}

// 128 bits of a tensor of 16-bit elements.
template <typename T>
union Chunk {
  uint4 bits;
  T elements[kChunk];

  __device__ Chunk() : bits{0, 0, 0, 0} {}
};

__host__ __device__ std::int64_t chunks_of(const Gradient &gradient) {
  return gradient.batch * gradient.rows * gradient.heads * (gradient.head_dim / kChunk);
}

// Where chunk i of a gradient is, in the order of a contiguous one.
__device__ uint4 *chunk_at(const Gradient &gradient, std::int64_t i) {
  const int chunks_per_vector = gradient.head_dim / kChunk;
  const std::int64_t vector = i / chunks_per_vector;  // (batch, rows, heads)
  const std::int64_t chunk = i - vector * chunks_per_vector;
  const std::int64_t row = vector / gradient.heads;  // (batch, rows)
  const std::int64_t head = vector - row * gradient.heads;
  const std::int64_t batch = row / gradient.rows;
  auto *data = static_cast<std::uint16_t *>(gradient.tensor.data) +
               batch * gradient.tensor.batch_stride +
               (row - batch * gradient.rows) * gradient.tensor.row_stride +
               head * gradient.tensor.head_stride + chunk * kChunk;
  return reinterpret_cast<uint4 *>(data);
}

__global__ void __launch_bounds__(kThreads) zeros_kernel(const Gradient gradient) {
  const std::int64_t count = chunks_of(gradient);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    *chunk_at(gradient, i) = uint4{0, 0, 0, 0};
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_sum_kernel(const Gradient sum, const uint4 *expanded, const int group) {
  const int chunks_per_vector = sum.head_dim / kChunk;
  const std::int64_t count = chunks_of(sum);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / chunks_per_vector;  // (batch, rows, heads)
    const uint4 *first = expanded + vector * group * chunks_per_vector + i % chunks_per_vector;
    float sums[kSums][kChunk] = {};
    for (int from = 0; from < group; from += kSums) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        if (from + s < group) {
          Chunk<T> chunk;
          chunk.bits = first[std::int64_t{from + s} * chunks_per_vector];
#pragma unroll
          for (int e = 0; e < kChunk; ++e) {
            sums[s][e] += to_float(chunk.elements[e]);
          }
        }
      }
    }
    Chunk<T> result;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      from_float(((sums[0][e] + sums[1][e]) + sums[2][e]) + sums[3][e], result.elements[e]);
    }
    *chunk_at(sum, i) = result.bits;
  }
}

unsigned blocks_for(const Gradient &gradient) {
  return static_cast<unsigned>(
      std::min((chunks_of(gradient) + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

void launch_zeros(const Gradient &gradient, cudaStream_t stream) {
  zeros_kernel<<<blocks_for(gradient), kThreads, 0, stream>>>(gradient);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void launch_group_sum(const Gradient &sum, const void *expanded, std::int32_t group,
                      std::int32_t dtype, cudaStream_t stream) {
  const auto *chunks = static_cast<const uint4 *>(expanded);
  if (dtype == FA_FP16) {
    group_sum_kernel<__half><<<blocks_for(sum), kThreads, 0, stream>>>(sum, chunks, group);
  } else {
    group_sum_kernel<__nv_bfloat16><<<blocks_for(sum), kThreads, 0, stream>>>(sum, chunks, group);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace flashdepot
