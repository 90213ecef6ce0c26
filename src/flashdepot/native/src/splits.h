// Split-KV: how many parts the keys of a problem are cut into, and the memory that takes.
#pragma once

#include <cstdint>

#include "problem.h"

namespace flashdepot {

constexpr std::int32_t kMostSplits = 128;

// Upstream's choice (num_splits_heuristic, flash_api.cpp 263-297): the smallest number of splits
// that keeps the SMs at least 85% as busy as the best number would.
std::int32_t choose_splits(const Problem &problem, std::int32_t multiprocessors);

// What forward kernels write before it is combined or put in order. Offsets in bytes from the
// workspace.
struct SplitBuffers {
  std::uint64_t lse_accum;  // float (splits, batch, heads, rows); o_accum, (.., head dim), is at 0
  std::uint64_t lse;        // float (batch, heads, rows) and up to a whole block
  bool has_lse;             // else the kernels write the caller's lse
  std::uint64_t bytes;      // of all
};

// `unit_dim` is the head dim of the unit. Refuses what the kernels cannot index.
SplitBuffers split_buffers(const Problem &problem, std::int32_t unit_dim, std::int32_t splits);

}  // namespace flashdepot
