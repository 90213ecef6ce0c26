// A problem in the terms by which flash-attention's units are chosen and run.
#pragma once

#include "problem.h"

namespace flashdepot::fa2 {

// The problem as upstream's entry point for its kind hands it to its kernels.
struct UnitProblem {
  Kind kind;
  std::int32_t dtype;
  std::int32_t batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim;
  std::int32_t group;         // > 1: decoding; the query heads of one key head became rows
  std::int64_t total_q;       // packed: rows of q and o
  std::int64_t total_k;       // packed: rows of k and v
  bool causal;                // the causal units, which have no other window
  std::int32_t window_left;   // both -1 when nothing is masked
  std::int32_t window_right;  //
  float scale;                // of the scores, before softcap
  float softcap;              // 0: none
  float keep;                 // 1 - dropout
  bool alibi;
  bool deterministic;       // of the backward pass
  std::int32_t page_size;   // 0: not paged
  const char *split_field;  // the argument for which only split-KV kernels will do, or nullptr

  bool packed() const { return kind == Kind::packed; }
  bool paged() const { return page_size != 0; }
  bool dropout() const { return keep < 1.0f; }
  bool local() const { return !causal && (window_left >= 0 || window_right >= 0); }
  std::int64_t rows() const { return std::int64_t{batch} * heads_q * seqlen_q; }
};

UnitProblem unit_problem(const ForwardCall &call);
UnitProblem unit_problem(const BackwardCall &call);

}  // namespace flashdepot::fa2
