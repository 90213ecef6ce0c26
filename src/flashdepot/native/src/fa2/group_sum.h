// What upstream does to gradients with torch: adds up those of the query heads that share a key
// head.
#pragma once

#include "zeros.h"

namespace flashdepot::fa2 {

// Enqueues sum[.., n, :] = sum of expanded[.., n * group + i, :] over i. `expanded` is contiguous,
// (batch, rows, heads * group, head_dim), of the same dtype. Added as float, in the order in which
// ATen's sum adds up to 1024 elements: four sums of every fourth element, then
// those in turn (Reduce.cuh, input_vectorized and thread_reduce); so the bits are those of
// upstream.
[[nodiscard]] fa_status launch_group_sum(const Gradient &sum, const void *expanded,
                                         std::int32_t group, std::int32_t dtype,
                                         cudaStream_t stream);

}  // namespace flashdepot::fa2
