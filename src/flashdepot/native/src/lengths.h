// The number of keys of each sequence, for kernels that take a list of those.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

struct Lengths {
  std::int32_t *lengths;           // (batch); written
  const std::int32_t *cu_seqlens;  // (batch + 1), whose differences they are; nullptr: all are `all`
  std::int32_t all, batch;
};

[[nodiscard]] fa_status launch_lengths(const Lengths &lengths, cudaStream_t stream);

}  // namespace flashdepot
