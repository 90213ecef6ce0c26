// FlashAttention-3's kernels in this library.
#pragma once

#include <cuda_runtime_api.h>
#include <flash.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot::fa3 {

// Upstream's block of parameters and its launchers (flash.h).
using Params = Flash_fwd_params;
using Launch = void (*)(Params &params, cudaStream_t stream);

// What is wanted of a unit, or has: `paged` kernels read pages row by row, `split` ones a part of
// the keys, and those for neither whole tiles, of pages too.
struct Key {
  std::int32_t dtype, head_dim, head_dim_v;
  bool split, paged;
};

// The launcher of a unit; nullptr if the library has none. Head dims are those of the unit.
Launch find_unit(const Key &key);

// Combines what split kernels wrote, as bf16; nullptr if the library has no split unit.
Launch find_combine(std::int32_t head_dim_v);

bool has_feature(std::uint32_t feature);

}  // namespace flashdepot::fa3
