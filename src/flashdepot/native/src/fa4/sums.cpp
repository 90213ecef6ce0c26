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

// When the blocks of a kernel end, which SMs take as they get free, those with the most work first (worker/falling.py): in
// turns, each a tile of rows. A causal mask leaves the blocks of a head fewer and fewer. Of packed sequences the longest is
// known, and the mean of the others.
double end_of(const Problem &problem, const DeviceFacts &gpu, Tiles tiles, std::int32_t heads, double turns_of_a_tile,
              double besides) {
  const bool packed = problem.packed();
  const double turns = whole_up(1.0 * problem.seqlen_q / tiles.m) * turns_of_a_tile;  // of the longest sequence
  const double others = packed ? problem.batch - 1 : 0;
  const auto of_an_sm = [&](double sequences, double keys) {
    return sequences * heads * whole_up(keys / tiles.n) / gpu.multiprocessors;
  };
  if (mask_of(problem) == Mask::causal) {
    const double keys = packed ? 1.0 * problem.total_k / problem.batch : problem.seqlen_k;
    const double blocks = of_an_sm(problem.batch, keys);
    const double mean = turns * (1.0 + 1.0 / whole_up(keys / tiles.n)) / 2;
    return (blocks <= 1 ? turns : blocks * mean + 0.9 * turns) + besides * std::max(1.0, blocks);
  }
  const double longest = of_an_sm(packed ? 1 : problem.batch, problem.seqlen_k);
  const double end = whole_up(longest) * (turns + besides);
  if (others == 0) {
    return end;
  }
  const auto mean = [&](std::int64_t total, std::int32_t most) { return std::max(0.0, 1.0 * total - most) / others; };
  const double shorter = whole_up(mean(problem.total_q, problem.seqlen_q) / tiles.m) * turns_of_a_tile;
  const double blocks = of_an_sm(others, mean(problem.total_k, problem.seqlen_k));
  return std::max(end, longest * (turns + besides) + blocks * (shorter + besides) + shorter / 2);
}

}  // namespace

bool ends_sooner(const Problem &problem, const DeviceFacts *gpu, Tiles tiles) {
  if (gpu == nullptr || !several_heads(problem)) {
    return true;
  }
  // What a block and a call take besides, measured on an H200.
  constexpr double kBesides = 2, kBesidesWithSums = 3, kCallWithSums = 4;
  const double together = end_of(problem, *gpu, tiles, problem.heads_k, problem.heads_q / problem.heads_k, kBesides);
  return together <= end_of(problem, *gpu, tiles, problem.heads_q, 1, kBesidesWithSums) + kCallWithSums;
}

}  // namespace flashdepot::fa4
