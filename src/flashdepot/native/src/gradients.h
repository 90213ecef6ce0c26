// What upstream does to gradients with torch: fills them with zeros, and adds up those of the query
// heads that share a key head.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

// A gradient of 16-bit elements, (batch, rows, heads, head_dim).
struct Gradient {
  fa_tensor tensor;
  std::int32_t batch;
  std::int64_t rows;
  std::int32_t heads, head_dim;
};

// Enqueues gradient = 0.
void launch_zeros(const Gradient &gradient, cudaStream_t stream);

// Enqueues sum[.., n, :] = sum of expanded[.., n * group + i, :] over i. `expanded` is contiguous,
// (batch, rows, heads * group, head_dim), of the same dtype. Added as float, in the order in which
// ATen's sum adds up to 1024 elements: four sums of every fourth element, then those in turn
// (Reduce.cuh, input_vectorized and thread_reduce); so the bits are those of upstream.
void launch_group_sum(const Gradient &sum, const void *expanded, std::int32_t group,
                      std::int32_t dtype, cudaStream_t stream);

}  // namespace flashdepot
