// What a caller asks for: checked, and without what only one family of kernels cares for.
#pragma once

#include <flash_attention.h>

#include <cstdint>

#include "divide.h"

namespace flashdepot {

// The kinds of call that flash_attention.h tells apart by their pointers.
enum class Kind { dense, packed, cache };

// The keys that query i sees: j >= i + sk - sq - left and j <= i + sk - sq + right. -1: no end.
struct Windows {
  std::int32_t left, right;

  bool unbounded() const { return left < 0 && right < 0; }
};

struct Problem {
  Kind kind;
  std::int32_t dtype;
  std::int32_t batch, seqlen_q, seqlen_k, heads_q, heads_k;
  std::int32_t head_dim;    // of the kernels: the larger one of
  std::int32_t head_dim_q;  // q and k
  std::int32_t head_dim_v;  // and v and o
  std::int64_t total_q;  // packed: rows of q and o
  std::int64_t total_k;  // packed: rows of k and v
  bool causal;           // FA_FLAG_CAUSAL is set
  Windows windows;  // what masks; an end that reaches every key is none, causal is a right of 0
  float scale;      // of the scores, before softcap
  float softcap;    // 0: none
  float keep;       // 1 - dropout
  bool alibi;
  bool deterministic;      // of the backward pass
  std::int32_t page_size;  // 0: not paged

  bool packed() const { return kind == Kind::packed; }
  bool paged() const { return page_size != 0; }
  bool dropout() const { return keep < 1.0f; }
  bool no_queries() const { return batch == 0 || seqlen_q == 0 || (packed() && total_q == 0); }
  bool no_keys() const { return seqlen_k == 0 || (packed() && !paged() && total_k == 0); }
};

// A call that is right, whatever the library and the GPU: its arguments and what they amount to.
struct ForwardCall {
  fa_fwd_args args;
  Problem problem;
};
struct BackwardCall {
  fa_bwd_args args;
  Problem problem;
};

// Read the caller's struct. Refuse what is wrong with sizes, flags, numbers and with what is set
// together; buffers are not looked at.
[[nodiscard]] fa_status read_call(const fa_fwd_args *args, ForwardCall &call);
[[nodiscard]] fa_status read_call(const fa_bwd_args *args, BackwardCall &call);

// The windows as they were asked for; FA_FLAG_CAUSAL is no window.
template <typename Args>
Windows asked_windows(const Args &args) {
  return {(args.flags & FA_FLAG_WINDOW_LEFT) != 0 ? args.window_left : -1,
          (args.flags & FA_FLAG_WINDOW_RIGHT) != 0 ? args.window_right : -1};
}

// softmax_d is padded to this many rows a sequence, and p_debug in both directions.
constexpr std::int64_t kRounding = 128;

constexpr std::int64_t padded_rows(std::int64_t rows) { return round_up(rows, kRounding); }

// Rows of softmax_d, of one head.
inline std::int64_t softmax_d_rows(const Problem &problem) {
  return problem.packed() ? problem.total_q + kRounding * problem.batch
                          : problem.batch * padded_rows(problem.seqlen_q);
}

}  // namespace flashdepot
