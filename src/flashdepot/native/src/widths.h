// Copies of tensors with another head dim: for kernels that have one for q, k and v.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

// `to` = `from`, of 16-bit elements, (batch, rows, heads, .): what `to` has more of the last dimension
// becomes 0, and what it has less is left out. With cu_seqlens only the rows of its sequences.
struct Widths {
  fa_tensor from, to;
  const std::int32_t *cu_seqlens;  // nullptr: every row
  std::int64_t batch, rows;
  std::int32_t heads, from_dim, to_dim, sequences;
};

[[nodiscard]] fa_status launch_widths(const Widths &copy, cudaStream_t stream);

}  // namespace flashdepot
