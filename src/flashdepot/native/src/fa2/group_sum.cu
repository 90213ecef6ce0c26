#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "error.h"
#include "fa2/group_sum.h"
#include "own_kernel.cuh"

namespace flashdepot::fa2 {

constexpr int kSums = 4;  // running sums of one element

__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline void from_float(float value, __half &result) { result = __float2half_rn(value); }
__device__ inline void from_float(float value, __nv_bfloat16 &result) {
  result = __float2bfloat16_rn(value);
}

// 128 bits of a tensor of 16-bit elements.
template <typename T>
union Chunk {
  uint4 bits;
  T elements[kChunk];

  __device__ Chunk() : bits{0, 0, 0, 0} {}
};

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

fa_status launch_group_sum(const Gradient &sum, const void *expanded, std::int32_t group,
                           std::int32_t dtype, cudaStream_t stream) {
  const unsigned blocks = blocks_for(chunks_of(sum));
  const auto *chunks = static_cast<const uint4 *>(expanded);
  if (dtype == FA_DTYPE_FP16) {
    group_sum_kernel<__half><<<blocks, kThreads, 0, stream>>>(sum, chunks, group);
  } else {
    group_sum_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(sum, chunks, group);
  }
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot::fa2
