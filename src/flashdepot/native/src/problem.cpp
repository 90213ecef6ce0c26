#include "problem.h"

#include <algorithm>
#include <cmath>

#include "checks.h"
#include "combinations.h"
#include "error.h"

namespace flashdepot {
namespace {

// The kernels count rows, keys and window ends in 32 bits; the sum of two sequences and a window
// must fit as well.
constexpr std::int32_t kLongest = 1 << 29;
// gridDim.y and gridDim.z (CUDA C++ Programming Guide, technical specifications).
constexpr std::int32_t kGridLimit = 65535;

// Newton's method from above; value >= 1. Not std::sqrt, which would make libm a dependency of
// every program that links the static library.
double square_root(double value) {
  double root = value;
  for (double next = (root + value / root) / 2; next < root; next = (root + value / root) / 2) {
    root = next;
  }
  return root;
}

template <typename Args>
void check_sizes(const Args &args) {
  if (args.dtype != FA_FP16 && args.dtype != FA_BF16) {
    refuse(FA_INVALID, "dtype is %d; allowed: FA_FP16 (%d), FA_BF16 (%d)", args.dtype, FA_FP16,
           FA_BF16);
  }
  check_range("batch", args.batch, 0, kGridLimit);
  check_range("seqlen_q", args.seqlen_q, 0, kLongest);
  check_range("seqlen_k", args.seqlen_k, 0, kLongest);
  check_range("heads_q", args.heads_q, 1, kGridLimit);
  check_range("heads_k", args.heads_k, 1, args.heads_q);
  if (args.heads_q % args.heads_k != 0) {
    refuse(FA_INVALID, "heads_q is %d and heads_k is %d; allowed: a heads_k that divides heads_q",
           args.heads_q, args.heads_k);
  }
  if (args.head_dim < 8 || args.head_dim > 256 || args.head_dim % 8 != 0) {
    refuse(FA_INVALID, "head_dim is %d; allowed: multiples of 8 from 8 to 256", args.head_dim);
  }
  check_range("total_q", args.total_q, 0, INT32_MAX);
  check_range("total_k", args.total_k, 0, INT32_MAX);
}

// The kernels index lse, and the backward pass softmax_d, by rows of all heads in 32 bits.
void check_rows(const char *what, std::int64_t rows) {
  if (rows > INT32_MAX) {
    refuse(FA_INVALID,
           "%s is %lld; allowed: less than 2^31, which is how the kernels count rows: split the "
           "batch",
           what, static_cast<long long>(rows));
  }
}

void check_rows(const fa_fwd_args &args) {
  if (args.cu_seqlens_q != nullptr) {
    check_rows("heads_q * total_q", args.heads_q * args.total_q);
  } else {
    check_rows("batch * heads_q * seqlen_q",
               std::int64_t{args.batch} * args.heads_q * args.seqlen_q);
  }
}

void check_rows(const fa_bwd_args &args) {
  if (args.cu_seqlens_q != nullptr) {
    check_rows("heads_q * (total_q + 128 * batch)",
               args.heads_q * (args.total_q + kRounding * args.batch));
  } else {
    check_rows("batch * heads_q * (seqlen_q up to 128s)",
               args.batch * round_up(args.seqlen_q) * args.heads_q);
  }
}

template <typename Args>
void check_window(const Args &args, const char *name, std::int32_t value, std::uint32_t flag,
                  const char *flag_name) {
  if ((args.flags & flag) == 0 && value != 0) {
    refuse(FA_INVALID,
           "%s is %d and flags has no %s, so it would be unbounded; set the flag or "
           "leave it 0",
           name, value, flag_name);
  }
  if (value < 0) {
    refuse(FA_INVALID, "%s is %d; allowed: 0 and up, or no %s for an unbounded one", name, value,
           flag_name);
  }
}

template <typename Args>
void check_numbers(const Args &args) {
  if (!(args.dropout >= 0.0f && args.dropout < 1.0f)) {
    refuse(FA_INVALID, "dropout is %g; allowed: 0 up to, but not including, 1",
           static_cast<double>(args.dropout));
  }
  if (!std::isfinite(args.scale) || args.scale < 0.0f) {
    refuse(FA_INVALID, "scale is %g; allowed: finite and positive, or 0 for 1 / sqrt(head_dim)",
           static_cast<double>(args.scale));
  }
  if (!std::isfinite(args.softcap) || args.softcap < 0.0f) {
    refuse(FA_INVALID, "softcap is %g; allowed: finite and positive, or 0 for none",
           static_cast<double>(args.softcap));
  }
  check_window(args, "window_left", args.window_left, FA_WINDOW_LEFT, "FA_WINDOW_LEFT");
  check_window(args, "window_right", args.window_right, FA_WINDOW_RIGHT, "FA_WINDOW_RIGHT");
}

// Keys that a query may see, as upstream counts them; -1 is unbounded.
struct Windows {
  std::int32_t left, right;

  bool unbounded() const { return left < 0 && right < 0; }
};

template <typename Args>
Windows windows_of(const Args &args) {
  return {(args.flags & FA_WINDOW_LEFT) != 0 ? args.window_left : -1,
          (args.flags & FA_WINDOW_RIGHT) != 0 ? args.window_right : -1};
}

// How far to the right a window must go to reach every key. That takes sq - 1, so with more
// queries than keys upstream's own limit, sk, would cut keys off.
template <typename Args>
std::int32_t rightmost(const Args &args) {
  return std::max(args.seqlen_q, args.seqlen_k);
}

// A window that reaches every key is as good as none.
template <typename Args>
Windows without_idle_ends(const Windows &windows, const Args &args) {
  return {windows.left >= args.seqlen_k ? -1 : windows.left,
          windows.right >= rightmost(args) ? -1 : windows.right};
}

template <typename Args>
void set_windows(Problem &problem, const Windows &windows, const Args &args) {
  const auto [left, right] = windows;
  problem.causal = left < 0 && right == 0;
  // A window with one end gets the other, at the far end of the keys.
  problem.window_left = left < 0 && right >= 0 ? args.seqlen_k : left;
  problem.window_right = right < 0 && left >= 0 ? rightmost(args) : right;
}

template <typename Args>
Problem common_problem(const Args &args, Kind kind) {
  Problem problem{};
  problem.kind = kind;
  problem.dtype = args.dtype;
  problem.batch = args.batch;
  problem.seqlen_q = args.seqlen_q;
  problem.seqlen_k = args.seqlen_k;
  problem.heads_q = args.heads_q;
  problem.heads_k = args.heads_k;
  problem.head_dim = args.head_dim;
  problem.group = 1;
  problem.total_q = args.total_q;
  problem.total_k = args.total_k;
  problem.scale =
      args.scale != 0.0f ? args.scale : static_cast<float>(1.0 / square_root(args.head_dim));
  problem.softcap = args.softcap;
  problem.keep = 1.0f - args.dropout;
  problem.alibi = args.alibi_slopes != nullptr;
  return problem;
}

Kind kind_of(const fa_fwd_args &args) {
  if (args.cu_seqlens_q != nullptr) {
    return Kind::packed;
  }
  const bool cache = args.cache_seqlens != nullptr || args.cache_batch_idx != nullptr ||
                     args.block_table != nullptr || args.seqlen_new != 0;
  return cache ? Kind::cache : Kind::dense;
}

}  // namespace

Problem read_problem(const fa_fwd_args &args) {
  check_combination(args);
  check_sizes(args);
  check_rows(args);
  check_numbers(args);
  check_range("num_splits", args.num_splits, 0, 128);

  Problem problem = common_problem(args, kind_of(args));
  problem.page_size = args.page_size;
  problem.split_field = args.block_table != nullptr       ? "block_table"
                        : args.cache_batch_idx != nullptr ? "cache_batch_idx"
                        : args.seqlen_new != 0            ? "k_new"
                                                          : nullptr;
  check_values(args, problem);

  const Windows asked = windows_of(args);
  Windows windows = without_idle_ends(asked, args);
  // One query sees every key, causal or not; but a causal unit adds the ALiBi bias another way.
  const bool causal = (args.flags & FA_CAUSAL) != 0 && (args.seqlen_q > 1 || problem.alibi);
  windows.right = causal ? 0 : windows.right;

  // Decoding with grouped heads: the queries of one key head are rows of one tile instead of tiles
  // with one row each. Only strides change. mha_fwd overlooks windows that reach every key, the
  // other entry points do not (flash_api.cpp 399-408, 591-594, 1271).
  const bool masked = problem.kind == Kind::dense ? !windows.unbounded() : !asked.unbounded();
  const bool one_query_each =
      args.seqlen_q == 1 && (!problem.packed() || args.total_q == args.batch);
  if (one_query_each && args.heads_q > args.heads_k && !masked && !causal && !problem.alibi &&
      !problem.dropout()) {
    problem.group = args.heads_q / args.heads_k;
    problem.seqlen_q = problem.group;
    problem.heads_q = args.heads_k;
  }
  set_windows(problem, windows, args);
  check_splits(args, problem);
  return problem;
}

Problem read_problem(const fa_bwd_args &args) {
  check_combination(args);
  check_sizes(args);
  check_rows(args);
  check_numbers(args);

  Problem problem =
      common_problem(args, args.cu_seqlens_q != nullptr ? Kind::packed : Kind::dense);
  problem.deterministic = (args.flags & FA_DETERMINISTIC) != 0;
  check_values(problem);
  Windows windows = without_idle_ends(windows_of(args), args);
  windows.right = (args.flags & FA_CAUSAL) != 0 ? 0 : windows.right;
  set_windows(problem, windows, args);
  return problem;
}

}  // namespace flashdepot
