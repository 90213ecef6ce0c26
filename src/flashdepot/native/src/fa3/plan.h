// Which of FlashAttention-3's units runs a call, over how many parts of the keys, and what that takes.
#pragma once

#include "fa3/units.h"
#include "family.h"

namespace flashdepot::fa3 {

// Head dims of the units that a problem runs in.
struct UnitDims {
  std::int32_t q, v;  // 0: there are none as wide
};
UnitDims unit_dims(const ForwardCall &call);

// Whether upstream's kernels know the call at all; else the reason.
Fit fits_words(const ForwardCall &call, Text *why);

struct ForwardPlan {
  UnitDims dims;
  bool varlen;     // some list of lengths is given
  bool causal;     // masked above the diagonal and nowhere else
  bool local;      // masked otherwise
  bool whole_pages;  // pages are read as tiles
  bool by_rows;      // pages are read row by row
  std::int32_t splits;
  std::int32_t rows, keys;  // that a block of the unit works on at a time
};

// For a GPU with so many SMs.
ForwardPlan plan_forward(const ForwardCall &call, std::int32_t multiprocessors);

Launch launch_of(const ForwardCall &call, const ForwardPlan &plan);

// Where in the workspace the parts of a plan lie, in bytes.
struct Buffers {
  std::uint64_t lengths;      // int32 (b): keys of each sequence, where the caller has them otherwise
  std::uint64_t lists;        // int32: what the prepare kernel finds out about each sequence, and
  std::uint64_t counter;      // int32: which tile is next
  std::uint64_t lse_parts;    // float (splits, rows)
  std::uint64_t o_parts;      // float (splits, rows, head_dim_v)
  std::uint64_t bytes;        // of all
  bool has_lengths, has_counter;
};
Buffers buffers_of(const ForwardCall &call, const ForwardPlan &plan);

// Entries of one of the lists.
std::int64_t list_length(std::int32_t batch);

}  // namespace flashdepot::fa3
