// Tensors in the workspace with the kernels' head dim, where q and k have another one than v.
//
// Columns of zeros change no score, and make columns of o that nobody reads.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

#include "checks.h"
#include "divide.h"
#include "problem.h"
#include "widths.h"

namespace flashdepot {

// Contiguous (batch, rows, heads, dim), or nothing where the caller's tensor is as wide.
struct Wide {
  std::uint64_t start;
  std::int64_t batch, rows;
  std::int32_t heads, from_dim, dim;

  bool any() const { return dim != 0; }
  fa_tensor at(void *workspace) const {
    const std::int64_t row = std::int64_t{heads} * dim;
    return fa_make_tensor(static_cast<char *>(workspace) + start, rows * row, row, dim);
  }
};

// The extents of a tensor of queries or of keys, of this head dim.
inline Wide queries_of(const Problem &problem, std::int32_t dim) {
  const bool packed = problem.packed();
  return {0, packed ? 1 : problem.batch, packed ? problem.total_q : problem.seqlen_q,
          problem.heads_q, dim, 0};
}

inline Wide keys_of(const Problem &problem, std::int32_t dim) {
  const bool packed = problem.packed();
  return {0, packed ? 1 : problem.batch, packed ? problem.total_k : problem.seqlen_k,
          problem.heads_k, dim, 0};
}

// Gives a tensor that is narrower than `dim` a place after the first `bytes` of the workspace.
inline Wide place_wide(std::uint64_t &bytes, Wide wide, std::int32_t dim) {
  constexpr std::uint64_t kAlignment = 256;
  if (wide.from_dim == dim) {
    return wide;
  }
  wide.dim = dim;
  wide.start = bytes;
  const std::int64_t elements = wide.batch * wide.rows * wide.heads * dim;
  bytes += round_up(static_cast<std::uint64_t>(elements) * 2, kAlignment);
  return wide;
}

inline void assign(fa_tensor &to, const fa_tensor &from) { to = from; }
inline void assign(fa_const_tensor &to, const fa_tensor &from) { to = fa_as_const(from); }

// Enqueues the copy of an input, and lets `inner` be it. Rows of no sequence are copied too.
template <typename Tensor>
[[nodiscard]] fa_status widen(const Wide &wide, const Tensor &given, void *workspace, Tensor &inner,
                              cudaStream_t stream) {
  if (!wide.any()) {
    return FA_STATUS_OK;
  }
  assign(inner, wide.at(workspace));
  return launch_widths({plain(given), wide.at(workspace), nullptr, wide.batch, wide.rows,
                        wide.heads, wide.from_dim, wide.dim, 0},
                       stream);
}

// Where a kernel writes an output.
inline fa_tensor wide_output(const Wide &wide, const fa_tensor &given, void *workspace) {
  return wide.any() ? wide.at(workspace) : given;
}

// Enqueues the copy of an output to the caller's. With cu_seqlens rows of no sequence are left alone.
[[nodiscard]] inline fa_status narrow(const Wide &wide, const fa_tensor &inner,
                                      const fa_tensor &given, const std::int32_t *cu_seqlens,
                                      std::int32_t sequences, cudaStream_t stream) {
  if (!wide.any()) {
    return FA_STATUS_OK;
  }
  return launch_widths({inner, given, cu_seqlens, wide.batch, wide.rows, wide.heads, wide.dim,
                        wide.from_dim, sequences},
                       stream);
}

}  // namespace flashdepot
