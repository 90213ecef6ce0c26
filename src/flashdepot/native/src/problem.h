// What a caller asks for: checked, and in the terms that the kernels are chosen and run by.
#pragma once

#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

// A forward problem as upstream's mha_fwd hands it to its kernels (flash_api.cpp 397-433).
struct Problem {
  std::int32_t dtype;
  std::int32_t batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim;
  std::int32_t group;         // > 1: decoding; the query heads of one key head became rows
  bool causal;                // the causal units, which have no other window
  std::int32_t window_left;   // both -1 when nothing is masked
  std::int32_t window_right;  //
  float scale;                // of the scores, before softcap
  float softcap;              // 0: none
  bool alibi;

  bool local() const { return !causal && (window_left >= 0 || window_right >= 0); }
  bool no_queries() const { return batch == 0 || seqlen_q == 0; }
  bool no_keys() const { return seqlen_k == 0; }
  std::int64_t rows() const { return std::int64_t{batch} * heads_q * seqlen_q; }
};

// Refuses what is wrong with sizes, flags and numbers, and what this release cannot do.
Problem read_problem(const fa2_fwd_args &args);

// Refuses what cannot be a device's ordinal.
void check_device(std::int32_t ordinal);

// Refuses what is wrong with pointers, strides and alignment.
void check_buffers(const fa2_fwd_args &args);

}  // namespace flashdepot
