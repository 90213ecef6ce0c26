#include "problem.h"

#include <algorithm>
#include <cmath>

#include "arguments.h"
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

// The widest that any family's kernels are, of v: those of absorbed latent attention.
constexpr std::int32_t widest_v(const fa_fwd_args &) { return 512; }
constexpr std::int32_t widest_v(const fa_bwd_args &) { return 256; }

fa_status check_dtype(const fa_fwd_args &args) {
  if (args.dtype != FA_DTYPE_FP16 && args.dtype != FA_DTYPE_BF16 && args.dtype != FA_DTYPE_E4M3) {
    return refuse(FA_STATUS_INVALID,
                  "dtype is %d; allowed: FA_DTYPE_FP16 (%d), FA_DTYPE_BF16 (%d), FA_DTYPE_E4M3 (%d)",
                  args.dtype, FA_DTYPE_FP16, FA_DTYPE_BF16, FA_DTYPE_E4M3);
  }
  return FA_STATUS_OK;
}

fa_status check_dtype(const fa_bwd_args &args) {
  if (args.dtype == FA_DTYPE_E4M3) {
    return refuse(FA_STATUS_UNSUPPORTED,
                  "dtype is %d (FA_DTYPE_E4M3), which has no backward pass in any family: use "
                  "FA_DTYPE_FP16 or FA_DTYPE_BF16",
                  args.dtype);
  }
  if (args.dtype != FA_DTYPE_FP16 && args.dtype != FA_DTYPE_BF16) {
    return refuse(FA_STATUS_INVALID, "dtype is %d; allowed: FA_DTYPE_FP16 (%d), FA_DTYPE_BF16 (%d)", args.dtype,
                  FA_DTYPE_FP16, FA_DTYPE_BF16);
  }
  return FA_STATUS_OK;
}

template <typename Args>
fa_status check_sizes(const Args &args) {
  FLASHDEPOT_TRY(check_dtype(args));
  FLASHDEPOT_TRY(check_range("batch", args.batch, 0, kGridLimit));
  FLASHDEPOT_TRY(check_range("seqlen_q", args.seqlen_q, 0, kLongest));
  FLASHDEPOT_TRY(check_range("seqlen_k", args.seqlen_k, 0, kLongest));
  FLASHDEPOT_TRY(check_range("heads_q", args.heads_q, 1, kGridLimit));
  FLASHDEPOT_TRY(check_range("heads_k", args.heads_k, 1, args.heads_q));
  if (args.heads_q % args.heads_k != 0) {
    return refuse(FA_STATUS_INVALID,
                  "heads_q is %d and heads_k is %d; allowed: a heads_k that divides heads_q",
                  args.heads_q, args.heads_k);
  }
  if (args.head_dim < 8 || args.head_dim > 256 || args.head_dim % 8 != 0) {
    return refuse(FA_STATUS_INVALID, "head_dim is %d; allowed: multiples of 8 from 8 to 256",
                  args.head_dim);
  }
  if (args.head_dim_v < 0 || args.head_dim_v > widest_v(args) || args.head_dim_v % 8 != 0) {
    return refuse(FA_STATUS_INVALID,
                  "head_dim_v is %d; allowed: multiples of 8 from 8 to %d, or 0 for head_dim",
                  args.head_dim_v, widest_v(args));
  }
  FLASHDEPOT_TRY(check_range("total_q", args.total_q, 0, INT32_MAX));
  FLASHDEPOT_TRY(check_range("total_k", args.total_k, 0, INT32_MAX));
  return FA_STATUS_OK;
}

// The kernels index lse, and the backward pass softmax_d, by rows of all heads in 32 bits.
fa_status check_rows(const char *what, std::int64_t rows) {
  if (rows > INT32_MAX) {
    return refuse(
        FA_STATUS_INVALID,
        "%s is %lld; allowed: less than 2^31, which is how the kernels count rows: split the "
        "batch",
        what, static_cast<long long>(rows));
  }
  return FA_STATUS_OK;
}

fa_status check_rows(const fa_fwd_args &args) {
  if (args.cu_seqlens_q != nullptr) {
    FLASHDEPOT_TRY(check_rows("heads_q * total_q", args.heads_q * args.total_q));
  } else {
    FLASHDEPOT_TRY(check_rows("batch * heads_q * seqlen_q",
                              std::int64_t{args.batch} * args.heads_q * args.seqlen_q));
  }
  return FA_STATUS_OK;
}

fa_status check_rows(const fa_bwd_args &args) {
  if (args.cu_seqlens_q != nullptr) {
    FLASHDEPOT_TRY(check_rows("heads_q * (total_q + 128 * batch)",
                              args.heads_q * (args.total_q + kRounding * args.batch)));
  } else {
    FLASHDEPOT_TRY(check_rows("batch * heads_q * (seqlen_q up to 128s)",
                              args.batch * padded_rows(args.seqlen_q) * args.heads_q));
  }
  return FA_STATUS_OK;
}

template <typename Args>
fa_status check_window(const Args &args, const char *name, std::int32_t value, std::uint32_t flag,
                       const char *flag_name) {
  if ((args.flags & flag) == 0 && value != 0) {
    return refuse(FA_STATUS_INVALID,
                  "%s is %d and flags has no %s, so it would be unbounded; set the flag or "
                  "leave it 0",
                  name, value, flag_name);
  }
  if (value < 0) {
    return refuse(FA_STATUS_INVALID, "%s is %d; allowed: 0 and up, or no %s for an unbounded one", name,
                  value, flag_name);
  }
  return FA_STATUS_OK;
}

template <typename Args>
fa_status check_numbers(const Args &args) {
  if (!(args.dropout >= 0.0f && args.dropout < 1.0f)) {
    return refuse(FA_STATUS_INVALID, "dropout is %g; allowed: 0 up to, but not including, 1",
                  static_cast<double>(args.dropout));
  }
  if (!std::isfinite(args.scale) || args.scale < 0.0f) {
    return refuse(FA_STATUS_INVALID,
                  "scale is %g; allowed: finite and positive, or 0 for 1 / sqrt(head_dim)",
                  static_cast<double>(args.scale));
  }
  if (!std::isfinite(args.softcap) || args.softcap < 0.0f) {
    return refuse(FA_STATUS_INVALID, "softcap is %g; allowed: finite and positive, or 0 for none",
                  static_cast<double>(args.softcap));
  }
  FLASHDEPOT_TRY(
      check_window(args, "window_left", args.window_left, FA_FLAG_WINDOW_LEFT,
                   "FA_FLAG_WINDOW_LEFT"));
  FLASHDEPOT_TRY(
      check_window(args, "window_right", args.window_right, FA_FLAG_WINDOW_RIGHT,
                   "FA_FLAG_WINDOW_RIGHT"));
  return FA_STATUS_OK;
}

// Ends that mask something. The last query is the last key's, so a left end reaches every key from
// sk - 1 on; the first query is sq - 1 keys before it, so a right end does from sq - 1 on.
template <typename Args>
Windows windows_of(const Args &args) {
  Windows windows = asked_windows(args);
  if ((args.flags & FA_FLAG_CAUSAL) != 0) {
    windows.right = 0;
  }
  return {windows.left >= args.seqlen_k - 1 ? -1 : windows.left,
          windows.right >= args.seqlen_q - 1 ? -1 : windows.right};
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
  problem.head_dim_q = args.head_dim;
  problem.head_dim_v = args.head_dim_v != 0 ? args.head_dim_v : args.head_dim;
  problem.head_dim = std::max(problem.head_dim_q, problem.head_dim_v);
  problem.total_q = args.total_q;
  problem.total_k = args.total_k;
  problem.scale =
      args.scale != 0.0f ? args.scale : static_cast<float>(1.0 / square_root(args.head_dim));
  problem.softcap = args.softcap;
  problem.keep = 1.0f - args.dropout;
  problem.alibi = args.alibi_slopes != nullptr;
  problem.causal = (args.flags & FA_FLAG_CAUSAL) != 0;
  problem.windows = windows_of(args);
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

constexpr std::uint32_t kMasks =
    FA_FLAG_CAUSAL | FA_FLAG_WINDOW_LEFT | FA_FLAG_WINDOW_RIGHT | FA_FLAG_EMPTY_LSE_NEG_INF;

}  // namespace

fa_status read_call(const fa_fwd_args *given, ForwardCall &call) {
  fa_fwd_args &args = call.args;
  FLASHDEPOT_TRY(read_args(given, "fa_fwd_args", kMasks | FA_FLAG_ROTARY_INTERLEAVED, args));
  FLASHDEPOT_TRY(check_combination(args));
  FLASHDEPOT_TRY(check_sizes(args));
  FLASHDEPOT_TRY(check_rows(args));
  FLASHDEPOT_TRY(check_numbers(args));
  FLASHDEPOT_TRY(check_range("num_splits", args.num_splits, 0, 128));
  call.problem = common_problem(args, kind_of(args));
  call.problem.page_size = args.page_size;
  FLASHDEPOT_TRY(check_values(args, call.problem));
  return check_served(args, call.problem);
}

fa_status read_call(const fa_bwd_args *given, BackwardCall &call) {
  fa_bwd_args &args = call.args;
  FLASHDEPOT_TRY(read_args(given, "fa_bwd_args", kMasks | FA_FLAG_DETERMINISTIC, args));
  if (args.reserved0 != 0) {
    return refuse(FA_STATUS_INVALID, "reserved0 is %d; allowed: 0", args.reserved0);
  }
  FLASHDEPOT_TRY(check_combination(args));
  FLASHDEPOT_TRY(check_sizes(args));
  FLASHDEPOT_TRY(check_rows(args));
  FLASHDEPOT_TRY(check_numbers(args));
  call.problem = common_problem(args, args.cu_seqlens_q != nullptr ? Kind::packed : Kind::dense);
  call.problem.deterministic = (args.flags & FA_FLAG_DETERMINISTIC) != 0;
  return check_served(args, call.problem);
}

}  // namespace flashdepot
