// Attention over no keys, for which upstream fills tensors with torch.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>
#include <type_traits>

namespace flashdepot {

struct EmptyKeys {
  fa_tensor o;  // 16-bit elements
  float *lse;   // (batch, heads, rows) contiguous
  const std::int32_t *cu_seqlens;  // nullptr: not packed; else only rows of its sequences
  std::int32_t batch, rows, heads, head_dim;
  std::int64_t sequences;
};
static_assert(std::has_unique_object_representations_v<EmptyKeys>);

// Enqueues o = 0 and lse = +inf.
[[nodiscard]] fa_status launch_empty_keys(const EmptyKeys &output, cudaStream_t stream);

}  // namespace flashdepot
