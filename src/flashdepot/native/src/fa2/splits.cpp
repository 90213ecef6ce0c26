#include "fa2/splits.h"

#include <algorithm>

#include "divide.h"

namespace flashdepot::fa2 {
namespace {

// The part of the block slots that is in use, over all waves. In float, as upstream computes it.
float efficiency(std::int32_t blocks, std::int32_t slots) {
  const float waves = static_cast<float>(blocks) / static_cast<float>(slots);
  return waves / static_cast<float>(divide_up(blocks, slots));
}

// Rows that one block of the combine kernel takes (flash_fwd_launch_template.h 134-138
// of 2.8.3.post2).
std::int32_t combine_rows(std::int32_t unit_dim) {
  return unit_dim % 128 == 0 ? 4 : unit_dim % 64 == 0 ? 8 : 16;
}

// Of more than one split.
SplitBuffers accumulators(const UnitProblem &problem, std::int32_t unit_dim, std::int32_t splits) {
  const auto rows = static_cast<std::uint64_t>(problem.rows());
  const auto block = static_cast<std::uint64_t>(combine_rows(unit_dim));

  SplitBuffers buffers{};
  buffers.lse_accum = rows * static_cast<std::uint64_t>(splits) *
                      static_cast<std::uint64_t>(unit_dim) * sizeof(float);
  buffers.lse = buffers.lse_accum + rows * static_cast<std::uint64_t>(splits) * sizeof(float);
  // The combine kernel writes lse for whole blocks of rows, past the end of an lse that is not a
  // multiple of one (flash_fwd_kernel.h 1190 of 2.8.3.post2); but not of a packed one. Those go to
  // the workspace first.
  buffers.has_lse = !problem.packed() && rows % block != 0;
  buffers.bytes = buffers.lse;
  if (buffers.has_lse) {
    buffers.bytes += (rows / block + 1) * block * sizeof(float);
  }
  return buffers;
}

}  // namespace

std::int32_t choose_splits(const UnitProblem &problem, std::int32_t multiprocessors) {
  constexpr std::int32_t kRowsPerBlock = 64;
  const std::int32_t keys_per_block = problem.head_dim <= 64    ? 256
                                      : problem.head_dim <= 128 ? 128
                                                                : 64;
  const std::int32_t key_blocks = divide_up(problem.seqlen_k, keys_per_block);
  const std::int32_t blocks =
      problem.batch * problem.heads_q * divide_up(problem.seqlen_q, kRowsPerBlock);
  const std::int32_t slots = 2 * multiprocessors;  // two blocks of 128 threads an SM

  if (static_cast<float>(blocks) >= 0.8f * static_cast<float>(slots)) {
    return 1;
  }
  const std::int32_t most = std::min({kMostSplits, slots, key_blocks});
  // A number that gives no split fewer key blocks than the number before it only adds empty ones.
  const auto worth_it = [&](std::int32_t splits) {
    return splits == 1 || divide_up(key_blocks, splits) != divide_up(key_blocks, splits - 1);
  };
  float best = 0.0f;
  for (std::int32_t splits = 1; splits <= most; ++splits) {
    if (worth_it(splits)) {
      best = std::max(best, efficiency(blocks * splits, slots));
    }
  }
  for (std::int32_t splits = 1; splits <= most; ++splits) {
    if (worth_it(splits) && efficiency(blocks * splits, slots) >= 0.85 * best) {
      return splits;
    }
  }
  return 1;
}

SplitBuffers split_buffers(const UnitProblem &problem, std::int32_t unit_dim, std::int32_t splits) {
  if (splits > 1) {
    return accumulators(problem, unit_dim, splits);
  }
  SplitBuffers buffers{};
  // Uncombined, the split-KV kernels write the lse of blocks without keys where a padded batch has
  // it, and that of decoding queries at (heads, batch, group) (flash_fwd_kernel.h 545, 1020 of
  // 2.8.3.post2): in a packed lse that is over other rows, or past its end. They get a padded one.
  if (problem.packed() && problem.split_field != nullptr) {
    buffers.has_lse = true;
    buffers.bytes = static_cast<std::uint64_t>(problem.rows()) * sizeof(float);
  }
  return buffers;
}

Fit fits_splits(const UnitProblem &problem, std::int32_t unit_dim, std::int32_t splits, Text *why) {
  if (splits <= 1) {
    if (problem.packed() && problem.split_field != nullptr && problem.rows() > INT32_MAX) {
      return decline(why, Fit::unsupported,
                     "%s is set and batch * heads_q * seqlen_q is %lld; over packed queries the "
                     "split-KV kernels count that many rows in 32 bits: allowed: less than 2^31",
                     problem.split_field, static_cast<long long>(problem.rows()));
    }
    return Fit::serves;
  }
  const std::int64_t accumulated = problem.rows() * splits * unit_dim;
  if (accumulated > INT32_MAX) {
    return decline(why, Fit::unsupported,
                   "num_splits is %d, which makes %lld partial results; the split-KV kernels index "
                   "them with 32 bits: allowed here are at most %lld splits",
                   splits, static_cast<long long>(accumulated),
                   static_cast<long long>(INT32_MAX / (problem.rows() * unit_dim)));
  }
  const std::int64_t heads = std::int64_t{problem.batch} * problem.heads_q;
  if (heads > 65535) {
    return decline(
        why, Fit::unsupported,
        "num_splits is %d and batch * heads is %lld; split-KV kernels run at most 65535: "
        "use num_splits 1 or a smaller batch",
        splits, static_cast<long long>(heads));
  }
  return Fit::serves;
}

}  // namespace flashdepot::fa2
