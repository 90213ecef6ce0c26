// Gradients of nothing, which upstream fills with torch.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>
#include <type_traits>

namespace flashdepot {

// A gradient of 16-bit elements, (batch, rows, heads, head_dim). Without padding, as all parameters
// of kernels: what is launched for the same call is the same bytes.
struct Gradient {
  fa_tensor tensor;
  std::int64_t batch, rows;
  std::int32_t heads, head_dim;
};
static_assert(std::has_unique_object_representations_v<Gradient>);

// Enqueues gradient = 0.
[[nodiscard]] fa_status launch_zeros(const Gradient &gradient, cudaStream_t stream);

}  // namespace flashdepot
