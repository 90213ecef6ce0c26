// Gradients of nothing, which upstream fills with torch.
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
[[nodiscard]] fa_status launch_zeros(const Gradient &gradient, cudaStream_t stream);

}  // namespace flashdepot
