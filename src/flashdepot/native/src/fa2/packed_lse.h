// From a padded lse, as the split-KV kernels write it, to a packed one.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>
#include <type_traits>

namespace flashdepot::fa2 {

struct PackedLse {
  const float *padded;               // (batch, heads, rows) contiguous
  float *packed;                     // (heads, total_q) contiguous
  const std::int32_t *cu_seqlens_q;  // (batch + 1) on the device
  std::int32_t batch, heads;
  std::int64_t rows;  // of the longest sequence
  std::int64_t total_q;
};
static_assert(std::has_unique_object_representations_v<PackedLse>);

// Enqueues the copy of each sequence's rows. Rows of no sequence are left alone.
[[nodiscard]] fa_status launch_packed_lse(const PackedLse &copy, cudaStream_t stream);

}  // namespace flashdepot::fa2
