// What is to be done before and after fa4's backward kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot::fa4 {

// softmax_d, from where fa4 pads sequences to its tiles to where flash_attention.h has it.
struct Statistics {
  const float *padded;  // (batch, heads, columns), or (heads, columns) when packed
  std::int64_t columns;
  float *delivered;                  // (batch, heads, rows up to 128s), or packed as softmax_d
  const std::int32_t *cu_seqlens_q;  // nullptr: not packed
  std::int32_t batch, heads;
  std::int32_t rows;   // of the longest sequence
  std::int32_t tile;   // sequences of a packed batch start at multiples of it
  std::int64_t total;  // packed: rows of all sequences
};

[[nodiscard]] fa_status launch_statistics(const Statistics &statistics, cudaStream_t stream);

// Where dk and dv are added up: a multiple of 16 bytes.
struct Sums {
  void *at;
  std::uint64_t bytes;
};

// Enqueues zeros there, during which the kernel after it may be launched, if that waits for its end.
[[nodiscard]] fa_status launch_zeros(const Sums &sums, cudaStream_t stream);

}  // namespace flashdepot::fa4
