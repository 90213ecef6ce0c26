#include "fa2/unit_problem.h"

#include <algorithm>

namespace flashdepot::fa2 {
namespace {

// How far to the right a window must go to reach every key. That takes sq - 1, so with more
// queries than keys upstream's own limit, sk, would cut keys off.
template <typename Args>
std::int32_t rightmost(const Args &args) {
  return std::max(args.seqlen_q, args.seqlen_k);
}

// A window that reaches every key is as good as none. Where upstream says so, which decides
// between kernels, and not where problem.h does.
template <typename Args>
Windows without_idle_ends(const Windows &windows, const Args &args) {
  return {windows.left >= args.seqlen_k ? -1 : windows.left,
          windows.right >= rightmost(args) ? -1 : windows.right};
}

template <typename Args>
void set_windows(UnitProblem &unit, const Windows &windows, const Args &args) {
  const auto [left, right] = windows;
  unit.causal = left < 0 && right == 0;
  // A window with one end gets the other, at the far end of the keys.
  unit.window_left = left < 0 && right >= 0 ? args.seqlen_k : left;
  unit.window_right = right < 0 && left >= 0 ? rightmost(args) : right;
}

UnitProblem common(const Problem &problem) {
  UnitProblem unit{};
  unit.kind = problem.kind;
  unit.dtype = problem.dtype;
  unit.batch = problem.batch;
  unit.seqlen_q = problem.seqlen_q;
  unit.seqlen_k = problem.seqlen_k;
  unit.heads_q = problem.heads_q;
  unit.heads_k = problem.heads_k;
  unit.head_dim = problem.head_dim;
  unit.group = 1;
  unit.total_q = problem.total_q;
  unit.total_k = problem.total_k;
  unit.scale = problem.scale;
  unit.softcap = problem.softcap;
  unit.keep = problem.keep;
  unit.alibi = problem.alibi;
  unit.deterministic = problem.deterministic;
  unit.page_size = problem.page_size;
  return unit;
}

}  // namespace

UnitProblem unit_problem(const ForwardCall &call) {
  const auto &[args, problem] = call;
  UnitProblem unit = common(problem);
  unit.split_field = args.block_table != nullptr       ? "block_table"
                     : args.cache_batch_idx != nullptr ? "cache_batch_idx"
                     : args.seqlen_new != 0            ? "k_new"
                                                       : nullptr;

  const Windows asked = asked_windows(args);
  Windows windows = without_idle_ends(asked, args);
  // One query sees every key, causal or not; but a causal unit adds the ALiBi bias another way.
  const bool causal = problem.causal && (args.seqlen_q > 1 || problem.alibi);
  windows.right = causal ? 0 : windows.right;

  // Decoding with grouped heads: the queries of one key head are rows of one tile instead of tiles
  // with one row each. Only strides change. mha_fwd overlooks windows that reach every key, the
  // other entry points do not (flash_api.cpp 399-408, 591-594, 1271 of 2.8.3.post2).
  const bool masked = problem.kind == Kind::dense ? !windows.unbounded() : !asked.unbounded();
  const bool one_query_each =
      args.seqlen_q == 1 && (!problem.packed() || args.total_q == args.batch);
  if (one_query_each && args.heads_q > args.heads_k && !masked && !causal && !problem.alibi &&
      !problem.dropout()) {
    unit.group = args.heads_q / args.heads_k;
    unit.seqlen_q = unit.group;
    unit.heads_q = args.heads_k;
  }
  set_windows(unit, windows, args);
  return unit;
}

UnitProblem unit_problem(const BackwardCall &call) {
  const auto &[args, problem] = call;
  UnitProblem unit = common(problem);
  Windows windows = without_idle_ends(asked_windows(args), args);
  windows.right = problem.causal ? 0 : windows.right;
  set_windows(unit, windows, args);
  return unit;
}

}  // namespace flashdepot::fa2
