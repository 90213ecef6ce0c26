#include "fa4/sums.h"

#include <algorithm>

#include "fa4/problem.h"

namespace flashdepot::fa4 {
namespace {

// Not std::ceil, which would make libm a dependency of every library, and which the DLL does not have.
double whole_up(double value) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(value));
  return whole < value ? whole + 1.0 : whole;
}

// A kernel, of which a block has a tile of keys. A turn is a tile of rows.
struct Blocks {
  Tiles tiles;
  double heads;    // of a sequence, each with blocks of its own
  double turns;    // of a tile of rows: one for each head whose rows a block goes through
  double besides;  // turns that a block takes before and after
  double apart;    // by which part of the longest block's time SMs end apart by a causal mask
};

// When the last block ends, in turns. SMs take blocks as they get free, those with the most work first (worker/falling.py).
// A causal mask leaves the blocks of a head fewer and fewer. Of packed sequences the longest is known, and the mean of the
// others.
double end_of(const Problem &problem, const DeviceFacts &gpu, const Blocks &kernel) {
  const bool causal = mask_of(problem) == Mask::causal;
  const auto turns_of = [&](double rows) { return whole_up(rows / kernel.tiles.m) * kernel.turns; };
  double blocks = 0, work = 0;  // of an SM
  const auto add = [&](double sequences, double rows, double keys) {
    const double of_a_head = whole_up(keys / kernel.tiles.n);
    const double some = sequences * kernel.heads * of_a_head / gpu.multiprocessors;
    blocks += some;
    work += some * (turns_of(rows) * (causal ? (1.0 + 1.0 / of_a_head) / 2 : 1.0) + kernel.besides);
  };
  const std::int32_t others = problem.packed() ? problem.batch - 1 : 0;
  const auto mean = [&](std::int64_t total, std::int32_t most) { return std::max(1.0, (1.0 * total - most) / others); };
  const double longest = turns_of(problem.seqlen_q);
  add(problem.batch - others, problem.seqlen_q, problem.seqlen_k);
  const double full = whole_up(blocks) * (longest + kernel.besides);
  double shorter = 0;
  if (others > 0) {
    const double rows = mean(problem.total_q, problem.seqlen_q);
    add(others, rows, mean(problem.total_k, problem.seqlen_k));
    shorter = turns_of(rows);
  }
  if (causal) {
    const double one = longest + kernel.besides;
    return blocks <= 1 ? one : std::max(one, work + kernel.apart * longest);
  }
  return others == 0 ? full : std::max(full, work + shorter / 2);
}

}  // namespace

bool ends_sooner(const Problem &problem, const DeviceFacts *gpu, Tiles tiles) {
  if (gpu == nullptr || !several_heads(problem)) {
    return true;
  }
  // Measured on an H200 (benchmarks/fa4.md). By a causal mask blocks are at different rows, those of many heads more than the
  // L2 cache keeps.
  constexpr double kCallWithSums = 4, kMany = 8, kSlower = 1.15;
  const double group = 1.0 * problem.heads_q / problem.heads_k;
  const bool misses = mask_of(problem) == Mask::causal && group >= kMany;
  const double together = end_of(problem, *gpu, {tiles, 1.0 * problem.heads_k, group, 2, 0.3});
  const double with_sums = end_of(problem, *gpu, {tiles, 1.0 * problem.heads_q, 1, 3, 0.5}) + kCallWithSums;
  return together * (misses ? kSlower : 1.0) <= with_sums;
}

}  // namespace flashdepot::fa4
