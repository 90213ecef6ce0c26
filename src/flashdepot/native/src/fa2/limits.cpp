#include "fa2/limits.h"

#include "error.h"

namespace flashdepot::fa2 {
namespace {

Fit fits_softcap(const Problem &problem, Text *why) {
  if (!problem.dropout() || problem.softcap == 0.0f) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "dropout is %g and softcap is %g, and no kernel of upstream does both: leave one "
                 "of them 0",
                 static_cast<double>(1.0f - problem.keep), static_cast<double>(problem.softcap));
}

Fit fits_paging(const fa_fwd_args &args, Text *why) {
  const char *other = args.block_table == nullptr       ? nullptr
                      : args.leftpad_k != nullptr       ? "leftpad_k"
                      : args.cache_batch_idx != nullptr ? "cache_batch_idx"
                                                        : nullptr;
  if (other == nullptr) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "%s and block_table are set, and no kernel of upstream does both: leave one of "
                 "them NULL",
                 other);
}

Fit fits_dropout(const fa_fwd_args &args, const UnitProblem &problem, Text *why) {
  if (!problem.dropout()) {
    return Fit::serves;
  }
  const char *cache = problem.kind == Kind::cache && problem.split_field == nullptr
                          ? "cache_seqlens"
                          : problem.split_field;
  if (cache != nullptr) {
    return decline(why, Fit::unsupported,
                   "dropout is %g and %s is set, and no kernel of upstream drops out over a cache "
                   "or pages: leave dropout 0",
                   static_cast<double>(args.dropout), cache);
  }
  const std::int64_t heads = std::int64_t{args.batch} * args.heads_q;
  const std::int64_t square = padded_rows(args.seqlen_q) * padded_rows(args.seqlen_k);
  if (args.p_debug != nullptr && heads > 0 && square > INT32_MAX / heads) {
    return decline(why, Fit::unsupported,
                   "p_debug is set and holds batch * heads_q = %lld times %lld probabilities; the "
                   "kernels index them with 32 bits: allowed: less than 2^31 in all",
                   static_cast<long long>(heads), static_cast<long long>(square));
  }
  return Fit::serves;
}

// A number of splits that the problem cannot be cut into.
Fit fits_num_splits(const fa_fwd_args &args, const UnitProblem &problem, Text *why) {
  if (args.num_splits <= 1) {
    return Fit::serves;
  }
  if (problem.dropout()) {
    return decline(why, Fit::unsupported,
                   "num_splits is %d and dropout is %g, and the split-KV kernels have no dropout: "
                   "leave num_splits 0",
                   args.num_splits, static_cast<double>(args.dropout));
  }
  if (problem.packed() && problem.group == 1) {
    return decline(why, Fit::unsupported,
                   "num_splits is %d and cu_seqlens_q is set; over packed sequences only decoding "
                   "with grouped heads splits the keys (seqlen_q 1, total_q = batch, heads_q > "
                   "heads_k, no window, no ALiBi, no dropout): leave num_splits 0",
                   args.num_splits);
  }
  return Fit::serves;
}

}  // namespace

Fit fits_limits(const ForwardCall &call, const UnitProblem &problem, Text *why) {
  Fit fit = fits_paging(call.args, why);
  if (fit == Fit::serves) {
    fit = fits_new_keys(call, why);
  }
  if (fit == Fit::serves) {
    fit = fits_softcap(call.problem, why);
  }
  if (fit == Fit::serves) {
    fit = fits_dropout(call.args, problem, why);
  }
  return fit == Fit::serves ? fits_num_splits(call.args, problem, why) : fit;
}

Fit fits_gathering(const ForwardCall &call, Text *why) {
  const auto &[args, problem] = call;
  if (const Fit fit = fits_paging(args, why); fit != Fit::serves) {
    return fit;
  }
  if (args.seqlen_new != 0) {
    return decline(why, Fit::unsupported,
                   "k_new is set with page_size %d, head_dim %d and head_dim_v %d, and upstream's "
                   "kernels append only to pages of a whole number of their tiles and to values as "
                   "wide as the keys: write the new keys to the cache first",
                   args.page_size, problem.head_dim_q, problem.head_dim_v);
  }
  const std::int64_t rows = std::int64_t{problem.batch} * problem.seqlen_k;
  if (problem.packed() && rows > INT32_MAX) {
    return decline(why, Fit::unsupported,
                   "batch * seqlen_k is %lld with page_size %d; keys of such pages are copied "
                   "together first, and their rows are counted in 32 bits: split the batch",
                   static_cast<long long>(rows), args.page_size);
  }
  return Fit::serves;
}

Fit fits_limits(const BackwardCall &call, Text *why) { return fits_softcap(call.problem, why); }

fa_status check_row_stride(const char *tensor, std::int64_t stride, std::int64_t rows,
                           const char *kernels) {
  constexpr std::int64_t kBlockRows = 256;
  constexpr std::int64_t kLargest = INT32_MAX / kBlockRows / 8 * 8;
  if (rows > 1 && stride > kLargest) {
    return refuse(FA_STATUS_UNSUPPORTED,
                  "%s.row_stride is %lld; the %s kernels step over up to 256 rows in 32 bits: "
                  "allowed here: up to %lld",
                  tensor, static_cast<long long>(stride), kernels,
                  static_cast<long long>(kLargest));
  }
  return FA_STATUS_OK;
}

}  // namespace flashdepot::fa2
