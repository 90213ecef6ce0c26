// What a caller asks for: checked, and in the terms that the kernels are chosen and run by.
#pragma once

#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

// The kinds of call that flash_attention.h tells apart by their pointers.
enum class Kind { dense, packed, cache };

// A problem as upstream's entry point for its kind hands it to its kernels.
struct Problem {
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
  bool no_queries() const { return batch == 0 || seqlen_q == 0 || (packed() && total_q == 0); }
  bool no_keys() const { return seqlen_k == 0 || (packed() && !paged() && total_k == 0); }
  std::int64_t rows() const { return std::int64_t{batch} * heads_q * seqlen_q; }
};

// Sequences are padded to this in whatever is indexed by seqlen_q_rounded or seqlen_k_rounded.
constexpr std::int64_t kRounding = 128;

constexpr std::int64_t round_up(std::int64_t value) {
  return (value + kRounding - 1) / kRounding * kRounding;
}

// Refuse what is wrong with sizes, flags, numbers and with what is set together.
Problem read_problem(const fa_fwd_args &args);
Problem read_problem(const fa_bwd_args &args);

}  // namespace flashdepot
