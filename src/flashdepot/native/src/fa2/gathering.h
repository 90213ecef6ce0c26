// Copies of keys or values from where a cache or pages have them to one place after the other.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot::fa2 {

// One tensor of keys or values: (batch, rows, heads, to_dim), whose columns from from_dim on are 0.
struct Gathering {
  fa_const_tensor from;
  fa_tensor to;
  const std::int32_t *block_table, *batch_idx, *lengths;  // each may be nullptr
  std::int64_t block_table_stride;
  std::int32_t page_size;
  std::int32_t batch, rows, heads, from_dim, to_dim;
};
[[nodiscard]] fa_status launch_gathering(const Gathering &gathering, cudaStream_t stream);

// `starts`, each `rows` after the one before it.
[[nodiscard]] fa_status launch_starts(std::int32_t *starts, std::int32_t batch, std::int32_t rows,
                                      cudaStream_t stream);

}  // namespace flashdepot::fa2
