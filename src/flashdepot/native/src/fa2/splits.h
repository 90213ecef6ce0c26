// Split-KV: how many parts the keys of a problem are cut into, and the memory that takes.
#pragma once

#include <cstdint>

#include "fa2/unit_problem.h"
#include "family.h"

namespace flashdepot::fa2 {

constexpr std::int32_t kMostSplits = 128;

// Upstream's choice (num_splits_heuristic, flash_api.cpp 263-297 of
// 2.8.3.post2): the smallest number of splits
// that keeps the SMs at least 85% as busy as the best number would.
std::int32_t choose_splits(const UnitProblem &problem, std::int32_t multiprocessors);

// What forward kernels write before it is combined or put in order. Offsets in bytes from the
// workspace.
struct SplitBuffers {
  std::uint64_t lse_accum;  // float (splits, batch, heads, rows); o_accum, (.., head dim), is at 0
  std::uint64_t lse;        // float (batch, heads, rows) and up to a whole block
  bool has_lse;             // else the kernels write the caller's lse
  std::uint64_t bytes;      // of all
};

// The buffers of a unit with this head dim.
SplitBuffers split_buffers(const UnitProblem &problem, std::int32_t unit_dim, std::int32_t splits);

// Whether the kernels can index that many splits; the reason goes to *why.
Fit fits_splits(const UnitProblem &problem, std::int32_t unit_dim, std::int32_t splits, Text *why);

}  // namespace flashdepot::fa2
