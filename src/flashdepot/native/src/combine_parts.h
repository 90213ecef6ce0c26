// Attention over several parts of the keys, to one.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>
#include <type_traits>

namespace flashdepot {

struct Combination {
  fa_const_tensor o_parts;  // (batch, rows, heads, head_dim), of each part
  fa_const_tensor lse_parts;  // (batch, rows, heads), of each part
  fa_tensor o;
  float *lse;  // (batch, heads, rows) contiguous, or nullptr
  std::int64_t o_parts_stride, lse_parts_stride;
  std::int64_t batch, rows;
  std::int32_t heads, head_dim, parts;
  std::int32_t parts_dtype, dtype;  // FA_DTYPE_
  float empty;                      // lse of a row that no part has a key for
};

[[nodiscard]] fa_status launch_combine(const Combination &combination, cudaStream_t stream);

}  // namespace flashdepot
