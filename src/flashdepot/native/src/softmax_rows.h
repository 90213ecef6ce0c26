// What a sink, a gradient of lse and another lse of empty rows change of rows of the softmax. The
// kernels of the families know none of them: with L and O their results, s the head's sink,
//   L' = log(exp(L) + exp(s)) and O' = O exp(L - L'), and in a row that sees no key L' = s, O' = 0;
// backward they get L', O' and D' = rowsum(dO O') - dL', and ds = -sum of exp(s - L') D'.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>
#include <type_traits>

namespace flashdepot {

// The rows of o and lse: (batch, heads, rows), or (heads, rows) of all sequences, of which only those
// from cu_seqlens[0] to cu_seqlens[sequences] are one's.
struct SoftmaxRows {
  fa_tensor o;
  float *lse;
  const float *sink;               // (heads), or nullptr
  const std::int32_t *cu_seqlens;  // nullptr: not packed
  std::int64_t batch, rows;
  std::int32_t heads, head_dim, dtype, sequences;
  float empty;       // lse of a row that sees no key, without a sink
  std::int32_t pad;  // the same bytes each time
};

// Enqueues O' and L' over O and L.
[[nodiscard]] fa_status launch_finish_rows(const SoftmaxRows &rows, cudaStream_t stream);

// Where softmax_d has the rows of sequences: padded to `tile`. Packed, a sequence starts at its first
// row and a tile for each before it, down to a multiple of `step`.
struct SoftmaxSums {
  float *softmax_d;  // (batch, heads, columns), or (heads, columns) when packed
  std::int64_t columns;
  const float *lse;                // (batch, heads, rows), or (heads, total)
  const float *d_lse;              // as lse, of d_lse
  const std::int32_t *cu_seqlens;  // nullptr: not packed
  std::int64_t total;
  std::int32_t batch, heads;
  std::int32_t rows;  // of the longest sequence
  std::int32_t tile, step;
  float keep;  // 1 - dropout, which the kernels multiply softmax_d by
};

// Enqueues softmax_d -= keep * d_lse in rows that see a key.
[[nodiscard]] fa_status launch_subtract_d_lse(const SoftmaxSums &sums, cudaStream_t stream);

// Enqueues d_sink of softmax_d and lse; sums in one order, so that the bits are the same every time.
[[nodiscard]] fa_status launch_d_sink(const SoftmaxSums &sums, const float *sink, float *d_sink,
                                      cudaStream_t stream);

// Enqueues `to` = `from` with +inf in place of -inf.
[[nodiscard]] fa_status launch_positive_infinity(float *to, const float *from, std::int64_t count,
                                                 cudaStream_t stream);

}  // namespace flashdepot
