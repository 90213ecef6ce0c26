// How few keys are divided among blocks.
#include <algorithm>

#include "divide.h"
#include "fa4/decode.h"
#include "fa4/shares.h"
#include "fa4/ways.h"

namespace flashdepot::fa4 {
namespace {

// What an H200 took of such keys (benchmarks/fa4.md): microseconds.
struct FewRates {
  double start;
  double head, tile;                // of a block or warp that has one after the other
  double megabyte;                  // in and out
  double sm_head, sm_row, sm_tile;  // of an SM that is full
  double joining;
  std::int64_t warps, room;  // of a block, blocks on an SM
};
constexpr FewRates few_rates_of(std::int32_t head_dim, Block block) {
  switch (block) {
    case Block::usual:
      return head_dim <= 64    ? FewRates{0.76, 2.56, 0.869, 0.274, 0.945, 0.039, 0.222, 0.96, 4, 2}
             : head_dim <= 128 ? FewRates{0.24, 1.97, 0.842, 0.259, 1.270, 0, 0.183, 1.09, 4, 2}
                               : FewRates{0.31, 1.88, 1.370, 0.305, 2.850, 0, 0.136, 1.25, 4, 1};
    case Block::small:
      return head_dim <= 64    ? FewRates{2.65, 0.315, 1.02, 0.305, 0.772, 0, 0.062, 0.89, 4, 4}
             : head_dim <= 128 ? FewRates{1.82, 0.156, 1.00, 0.258, 0.580, 0, 0.154, 1.16, 4, 4}
                               : FewRates{1.84, 0.471, 1.31, 0.272, 0.975, 0, 0.222, 1.32, 4, 3};
    case Block::warp:
      break;
  }
  return head_dim <= 64    ? FewRates{3.30, 0.4, 0.940, 0.298, 0.049, 0.002, 0.190, 0, 1, 20}
         : head_dim <= 128 ? FewRates{2.85, 0, 0.952, 0.280, 0.057, 0, 0.214, 0, 1, 16}
                           : FewRates{2.70, 1.44, 1.28, 0.296, 0.320, 0.005, 0.396, 0, 1, 10};
}
constexpr FewRates few_rates_of_shares(std::int32_t head_dim) {
  return head_dim <= 64    ? FewRates{1.74, 0.293, 1.02, 0.254, 0.798, 0.015, 0.033, 1.21, 4, 2}
         : head_dim <= 128 ? FewRates{1.71, 0, 1.145, 0.205, 0.742, 0.026, 0.113, 1.51, 4, 2}
                           : FewRates{2.07, 0.006, 0, 0.233, 1.533, 0.018, 0.428, 1.49, 8, 1};
}

// Key heads in `parts`, of which a block or warp has `heads` and `tiles` one after the other. there: the share of keys that
// sequences have in the mean.
double microseconds_of_few(const Problem &problem, std::int64_t sms, const FewRates &rates, std::int64_t parts,
                           std::int64_t heads, std::int64_t tiles, std::int64_t tiles_of_part, double there = 1.0) {
  constexpr double kInAndOut = 4.0;  // bytes of an element of q and o
  constexpr double kBeside = 0.15;   // of what is faster than the slowest, what is not hidden
  const Seen seen = seen_of(problem);
  const auto all = static_cast<double>(heads_of(problem)), rows = static_cast<double>(rows_of(problem));
  const double on_sm = static_cast<double>(divide_up(heads_of(problem) * parts, sms));
  const double bytes =
      all * (there * bytes_of(problem.head_dim, seen.high - seen.low) + kInAndOut * rows * problem.head_dim);
  const double in_turn = rates.head * static_cast<double>(heads) + rates.tile * static_cast<double>(tiles);
  const double full = on_sm * (rates.sm_head + rates.sm_row * rows + rates.sm_tile * there * static_cast<double>(tiles_of_part));
  const double moving = rates.megabyte * bytes / 1e6;
  const double slowest = std::max({in_turn, full, moving});
  return rates.start + (parts > 1 ? rates.joining : 0.0) + slowest + kBeside * (in_turn + full + moving - slowest);
}

constexpr std::int64_t kFewTiles = 4;

// By shares: whole heads, a grid apart, or a head by a few blocks.
TimedShares few_by_heads(const Problem &problem, std::int64_t sms, std::int64_t tiles) {
  constexpr std::int64_t kMostParts = 4;
  const FewRates rates = few_rates_of_shares(problem.head_dim);
  const std::int64_t heads = heads_of(problem), room = rates.room * sms, own = divide_up(heads, room);
  // Blocks with one head less begin others sooner; but where there is more to read, all end at once.
  const std::int64_t blocks = tiles <= kFewTiles ? std::min(heads, room) : divide_up(heads, own);
  TimedShares best{of_heads(heads, blocks, tiles), microseconds_of_few(problem, sms, rates, 1, own,
                                                                       divide_up(own * tiles, rates.warps), tiles)};
  if (problem.head_dim > 128 && heads % blocks != 0) {
    best.microseconds = kNever;  // its kernel has no whole heads for some blocks only
  }
  for (std::int64_t parts = 2; parts <= kMostParts; ++parts) {
    if (tiles % parts != 0 || heads * parts > room) {
      continue;
    }
    const std::int64_t each = tiles / parts;
    const double microseconds = microseconds_of_few(problem, sms, rates, parts, 1, divide_up(each, rates.warps), each);
    if (microseconds < best.microseconds) {
      best = {of_parts(heads, parts, tiles), microseconds};
    }
  }
  return best;
}

}  // namespace

Timed few_by_parts(const Problem &problem, std::int64_t sms, std::int64_t tiles, bool differ) {
  constexpr std::int64_t kMostTilesOfWarp = 4;
  constexpr double kSurelyOfLists = 1.1;  // most sequences have fewer keys than tell how many parts are best
  constexpr double kThereOfLists = 0.6;   // if it is not known better
  const std::int64_t heads = heads_of(problem), most = 2 * share_tile(problem.head_dim).blocks * sms;
  Timed best{false, {1, false}, kNever};
  const auto consider = [&](Block block, std::int64_t count) {
    Parts parts = with_cluster(count, heads, sms);
    if (count > tiles || (count > 1 && (!parts.in_cluster || count * heads > most))) {
      return;
    }
    parts.block = block;
    const FewRates rates = few_rates_of(problem.head_dim, block);
    const std::int64_t waves = divide_up(heads * count, rates.room * sms), of_part = divide_up(tiles, count);
    const double microseconds =
        microseconds_of_few(problem, sms, rates, count, waves, waves * divide_up(of_part, rates.warps), of_part,
                            differ ? kThereOfLists : 1.0) *
        (differ && count > 1 ? kSurelyOfLists : 1.0);
    if (microseconds < best.microseconds) {
      best = {false, parts, microseconds};
    }
  };
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{kMostInCluster}}) {
    consider(Block::usual, count);
  }
  consider(Block::small, 1);
  consider(Block::small, 2);
  if (tiles <= kMostTilesOfWarp) {
    consider(Block::warp, 1);
  }
  return best;
}

Way few_keys_way(const ForwardCall &call, std::int64_t sms) {
  constexpr double kSurelyEven = 1.05;
  const Problem &problem = call.problem;
  const bool differ = problem.paged() || has_lists(call.args);
  const std::int64_t tiles = tiles_seen(problem);  // and of the kernels of decode.h
  const Timed parts = few_by_parts(problem, sms, tiles, differ);
  Way way{false, parts.parts, {}};
  double least = parts.microseconds;
  // Where lists or pages have to be read first, shares of few keys are no faster.
  if (const TimedShares heads = few_by_heads(problem, sms, tiles); !differ && heads.microseconds < least) {
    way.shares = heads.division, least = heads.microseconds;
  }
  Problem as_wide = problem;  // a smaller head dim takes as long
  as_wide.head_dim = share_tile(problem.head_dim).dim;
  const Seen seen = seen_of(problem);
  const bool may_be_even = differ ? seen.high - seen.low >= kFewestMeasured : tiles > kFewTiles;
  if (const Division even = even_shares(call, sms);
      may_be_even && microseconds_of_shares(as_wide, sms, even) * kSurelyEven < least) {
    way.shares = even;
  }
  return way;
}

}  // namespace flashdepot::fa4
