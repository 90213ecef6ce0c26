#include "fa3/plan.h"

#include <tile_size.h>

#include <algorithm>

#include "divide.h"

namespace flashdepot::fa3 {
namespace {

std::int32_t group_of(const Problem &problem) { return problem.heads_q / problem.heads_k; }

bool is_eight_bits(const Problem &problem) { return problem.dtype == FA_DTYPE_E4M3; }

// Rows and keys of a tile, which go by what the kernel is a template of.
void set_tile(const ForwardCall &call, ForwardPlan &plan) {
  const auto tile =
      tile_size_fwd_sm90(plan.dims.q, plan.dims.v, plan.causal, plan.local,
                         is_eight_bits(call.problem) ? 1 : 2, false, plan.by_rows, false);
  plan.rows = std::get<0>(tile);
  plan.keys = std::get<1>(tile);
}

Key key_of(const ForwardCall &call, const ForwardPlan &plan, bool split, bool by_rows) {
  return {call.problem.dtype, plan.dims.q, plan.dims.v, split, by_rows};
}

// Whole tiles of pages are read by one copy each, where the queries are more than one tile of rows
// (get_pagedkv_tma in hopper/flash_api.cpp), or where there is no unit that reads them by row.
void choose_paging(const ForwardCall &call, bool split, ForwardPlan &plan) {
  const auto &[args, problem] = call;
  set_tile(call, plan);
  if (!problem.paged()) {
    return;
  }
  const bool can = args.leftpad_k == nullptr && args.seqlen_new == 0 &&
                   problem.page_size % plan.keys == 0 &&
                   find_unit(key_of(call, plan, split, false)) != nullptr;
  const bool is_faster = problem.seqlen_q > plan.rows / group_of(problem);
  const bool is_only = find_unit(key_of(call, plan, split, true)) == nullptr;
  plan.whole_pages = can && (is_faster || is_only);
  plan.by_rows = !plan.whole_pages;
  set_tile(call, plan);
}

// The fewest splits with 85 % of the best use of the GPU (num_splits_heuristic in
// hopper/heuristics.h). A batch with lists of lengths may be one long sequence.
std::int32_t choose_splits(const Problem &problem, const ForwardPlan &plan,
                           std::int32_t multiprocessors) {
  constexpr std::int32_t kMost = 128;
  constexpr std::int64_t kCache = 50 << 20;
  const std::int32_t row_blocks = divide_up(problem.seqlen_q * group_of(problem), plan.rows);
  const std::int32_t both = problem.windows.left + problem.windows.right + 1 + plan.rows;
  const bool ends = plan.local && problem.windows.left >= 0 && problem.windows.right >= 0;
  const std::int32_t loaded = ends ? std::min(problem.seqlen_k, both) : problem.seqlen_k;
  const std::int32_t key_blocks = divide_up(loaded, plan.keys);
  const std::int64_t blocks =
      std::int64_t{plan.varlen ? 1 : problem.batch} * problem.heads_k * row_blocks;
  const std::int64_t head_bytes = std::int64_t{problem.seqlen_k} *
                                  (problem.head_dim_q + problem.head_dim_v) *
                                  (is_eight_bits(problem) ? 1 : 2);
  const auto slots = static_cast<float>(multiprocessors);
  if (static_cast<float>(blocks) >= 0.8f * slots) {
    const bool too_large = head_bytes > kCache && row_blocks >= multiprocessors * 2;
    return too_large && !plan.causal && !plan.local
               ? static_cast<std::int32_t>(std::min<std::int64_t>(divide_up(head_bytes, kCache), kMost))
               : 1;
  }
  if (key_blocks <= 4) {
    return 1;
  }
  const std::int32_t most = std::min({kMost, multiprocessors, key_blocks});
  const auto efficiency = [&](std::int32_t splits) {
    const std::int64_t all = blocks * splits;
    const std::int64_t waves = divide_up(all, multiprocessors);
    return static_cast<float>(all) / slots / static_cast<float>(waves);
  };
  float best = 0.0f;
  for (std::int32_t splits = 1; splits <= most; ++splits) {
    best = std::max(best, efficiency(splits));
  }
  for (std::int32_t splits = 1; splits <= most; ++splits) {
    if (efficiency(splits) >= 0.85f * best) {
      return splits;
    }
  }
  return 1;
}

std::uint64_t place(std::uint64_t &bytes, std::uint64_t size) {
  constexpr std::uint64_t kAlignment = 128;
  const std::uint64_t start = bytes;
  bytes += round_up(size, kAlignment);
  return start;
}

}  // namespace

UnitDims unit_dims(const ForwardCall &call) {
  const Problem &problem = call.problem;
  if (!is_eight_bits(problem)) {
    return problem.head_dim_q <= 64 && problem.head_dim_v <= 512 ? UnitDims{64, 512} : UnitDims{};
  }
  for (const std::int32_t dim : {64, 128, 256}) {
    if (problem.head_dim <= dim) {
      return {dim, dim};
    }
  }
  return {};
}

ForwardPlan plan_forward(const ForwardCall &call, std::int32_t multiprocessors) {
  const auto &[args, problem] = call;
  ForwardPlan plan{};
  plan.dims = unit_dims(call);
  plan.varlen = problem.packed() || args.cache_seqlens != nullptr || problem.paged() ||
                args.leftpad_k != nullptr;
  const bool chunked = args.attention_chunk > 0;
  plan.causal = problem.windows.left < 0 && problem.windows.right == 0 && !chunked;
  plan.local = (!problem.windows.unbounded() || chunked) && !plan.causal;
  plan.splits = args.num_splits;
  choose_paging(call, args.num_splits > 1, plan);
  if (args.num_splits == 0) {
    plan.splits = choose_splits(problem, plan, multiprocessors);
    if (plan.splits > 1 && find_unit(key_of(call, plan, true, plan.by_rows)) == nullptr) {
      plan.splits = 1;
    }
  }
  return plan;
}

Launch launch_of(const ForwardCall &call, const ForwardPlan &plan) {
  return find_unit(key_of(call, plan, plan.splits > 1, plan.by_rows));
}

std::int64_t list_length(std::int32_t batch) { return (std::int64_t{batch} + 3) / 4 * 4; }

Buffers buffers_of(const ForwardCall &call, const ForwardPlan &plan) {
  const auto &[args, problem] = call;
  Buffers buffers{};
  const bool given = problem.packed() ? args.seqused_k != nullptr : args.cache_seqlens != nullptr;
  // Kernels over pages, and what appends keys, take a list of lengths.
  buffers.has_lengths = problem.paged() && !given;
  buffers.lengths =
      place(buffers.bytes, buffers.has_lengths
                               ? static_cast<std::uint64_t>(problem.batch) * sizeof(std::int32_t)
                               : 0);
  constexpr std::int64_t kLists = 4;
  buffers.lists = place(buffers.bytes, plan.varlen ? static_cast<std::uint64_t>(
                                                         kLists * list_length(problem.batch)) *
                                                         sizeof(std::int32_t)
                                                   : 0);
  buffers.has_counter = plan.varlen || ((plan.causal || plan.local) && plan.splits == 1);
  buffers.counter = place(buffers.bytes, buffers.has_counter ? sizeof(std::int32_t) : 0);
  if (plan.splits > 1) {
    const std::int64_t rows =
        (problem.packed() ? problem.total_q : std::int64_t{problem.batch} * problem.seqlen_q) *
        problem.heads_q * plan.splits;
    const auto floats = static_cast<std::uint64_t>(rows) * sizeof(float);
    buffers.lse_parts = place(buffers.bytes, floats);
    buffers.o_parts =
        place(buffers.bytes, floats * static_cast<std::uint64_t>(problem.head_dim_v));
  }
  return buffers;
}

Fit fits_words(const ForwardCall &call, Text *why) {
  const auto &[args, problem] = call;
  const char *lacks = problem.dropout()             ? "dropout"
                      : problem.alibi               ? "alibi_slopes"
                      : problem.softcap > 0.0f      ? "softcap here: upstream has that as other units"
                      : args.rotary_cos != nullptr  ? "rotary_cos"
                      : args.cache_batch_idx != nullptr && problem.paged()
                          ? "cache_batch_idx with block_table"
                          : nullptr;
  if (lacks != nullptr) {
    return decline(why, Fit::unsupported, "it has no %s", lacks);
  }
  if (args.seqused_q != nullptr && args.sink != nullptr) {
    return decline(why, Fit::unsupported, "it has no sink with seqused_q");
  }
  if (const Fit fit = fits_new_keys(call, why); fit != Fit::serves) {
    return fit;
  }
  if (is_eight_bits(problem)) {
    if (args.out_dtype != FA_DTYPE_BF16) {
      return decline(why, Fit::unsupported,
                     "out_dtype is %d, and of FA_DTYPE_E4M3 the kernels write FA_DTYPE_BF16 (%d)",
                     args.out_dtype, FA_DTYPE_BF16);
    }
    if (problem.head_dim_q != problem.head_dim_v || problem.head_dim_q % 16 != 0) {
      return decline(why, Fit::unsupported,
                     "head_dim is %d and head_dim_v %d; its FP8 kernels take one for both, a "
                     "multiple of 16",
                     problem.head_dim_q, problem.head_dim_v);
    }
    if (args.qv.data != nullptr) {
      return decline(why, Fit::unsupported, "its FP8 kernels have no qv");
    }
    return Fit::serves;
  }
  const bool absorbed = problem.dtype == FA_DTYPE_BF16 && problem.head_dim_q <= 64 &&
                        problem.head_dim_v <= 512 &&
                        (problem.head_dim_v > 256 || args.qv.data != nullptr);
  if (!absorbed) {
    return decline(why, Fit::unsupported,
                   "its kernels here are for FA_DTYPE_E4M3, and for bf16 with a head_dim up to 64 "
                   "with qv or a head_dim_v from 264 to 512");
  }
  return Fit::serves;
}

}  // namespace flashdepot::fa3
