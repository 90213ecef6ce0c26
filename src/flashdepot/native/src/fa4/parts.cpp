#include "fa4/parts.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "divide.h"
#include "fa4/decode.h"
#include "fa4/shares.h"

namespace flashdepot::fa4 {
namespace {

constexpr std::int64_t kFewestKeys = 64;    // of a part
constexpr std::int64_t kMostParts = 128;    // that the kernel which joins them takes
constexpr std::int64_t kMostInCluster = 8;  // of any GPU (CUDA C++ Programming Guide, thread block clusters)
constexpr double kNever = 1e30;             // microseconds

std::int32_t number(std::int64_t n) { return static_cast<std::int32_t>(n); }

// What an H200 was measured to do with tiles of 8 rows (benchmarks/fa4.md): bytes in a microsecond. Memory gives each SM
// its share; one block alone does not take all of it.
struct Rates {
  double block, pair;  // one block on an SM, and two
  double share;        // of an SM, where all read
  std::int64_t room;   // blocks on an SM
};
constexpr Rates rates_of(std::int32_t head_dim) {
  return head_dim <= 64    ? Rates{28.5e3, 42.0e3, 31.2e3, 2}
         : head_dim <= 128 ? Rates{30.0e3, 44.0e3, 31.8e3, 2}
                           : Rates{49.5e3, 49.5e3, 31.8e3, 1};
}
constexpr Rates kUnit{49.0e3, 49.0e3, 33.6e3, 1};  // the kernels for many queries

// Microseconds of blocks that are on the GPU at once, a pair on some SMs where there are more blocks than those.
double of_a_wave(std::int64_t blocks, double bytes, const Rates &rates, std::int64_t sms) {
  if (blocks == 0) {
    return 0.0;
  }
  const double memory = rates.share * static_cast<double>(sms);
  const std::int64_t pairs = std::max<std::int64_t>(blocks - sms, 0);
  if (pairs == 0) {
    return bytes / std::min(rates.block, memory / static_cast<double>(blocks));
  }
  const double wanted = static_cast<double>(sms - pairs) * rates.block + static_cast<double>(pairs) * rates.pair;
  const double given = std::min(1.0, memory / wanted);
  const double until_others_end = pairs < sms ? bytes / (rates.block * given) : 0.0;
  const double left = std::max(2.0 * bytes - rates.pair * given * until_others_end, 0.0);
  return until_others_end + left / std::min(rates.pair, memory / static_cast<double>(pairs));
}

double of_blocks(std::int64_t blocks, double bytes, const Rates &rates, std::int64_t sms) {
  const std::int64_t at_once = rates.room * sms;
  const double whole_waves = static_cast<double>(blocks / at_once) * static_cast<double>(rates.room);
  return whole_waves * bytes / rates.share + of_a_wave(blocks % at_once, bytes, rates, sms);
}

std::int64_t heads_of(const Problem &problem) {
  return std::max<std::int64_t>(std::int64_t{problem.batch} * problem.heads_k, 1);
}

double bytes_of(std::int32_t head_dim, std::int64_t keys) {
  constexpr double kKeyAndValue = 4.0;  // bytes of an element of each
  return kKeyAndValue * static_cast<double>(keys) * head_dim;
}

double microseconds_of_parts(const Problem &problem, std::int64_t sms, const Parts &parts) {
  const Rates rates = rates_of(problem.head_dim);
  const std::int64_t tile = problem.head_dim <= 64 ? 32 : 16;
  const std::int64_t tiles = divide_up(problem.seqlen_k, tile);
  const std::int64_t blocks = heads_of(problem) * parts.count;
  const double longest = bytes_of(problem.head_dim, divide_up(tiles, parts.count) * tile);
  const double reading = of_blocks(blocks, longest, rates, sms);
  if (parts.count == 1) {
    return reading + 3.9;
  }
  if (parts.in_cluster) {
    return reading + (parts.count < kMostInCluster ? 5.4 : 4.7);
  }
  const double waves = static_cast<double>(blocks) / static_cast<double>(rates.room * sms);
  const double rows = static_cast<double>(problem.batch) * problem.heads_q;
  return reading + 6.0 + std::min(rows / 100.0, 2.5) + parts.count * problem.head_dim / 1865.0 +
         4.0 * std::max(waves - 1.0, 0.0);
}

double microseconds_of_unit(const Problem &problem, std::int64_t sms) {
  return of_blocks(heads_of(problem), bytes_of(problem.head_dim, problem.seqlen_k), kUnit, sms) + 5.0;
}

// Problems that the rates were measured with.
constexpr std::int32_t kFewestMeasured = 512;  // keys
bool is_measured(const Problem &problem) {
  return rows_of(problem) <= kShareRows && problem.seqlen_k >= kFewestMeasured;
}

Parts with_cluster(std::int64_t count, std::int64_t blocks, std::int64_t sms) {
  // Pairs always find room; of larger clusters some SMs of each part of the GPU are left over.
  const bool is_cluster = (count > 1 && count <= 4) || count == kMostInCluster;
  const bool in_cluster = is_cluster && (count == 2 || 11 * count * blocks <= 10 * sms);
  return {static_cast<std::int32_t>(count), in_cluster};
}

// Without parts.
std::int64_t blocks_of(const Problem &problem) {
  return std::max<std::int64_t>(problem.batch * tiles_of(problem), 1);
}

// A block for each SM; a second kernel costs more than SMs without one where keys are few.
Parts usual_parts(const Problem &problem, std::int64_t sms) {
  constexpr std::int64_t kFewKeys = 2048;
  const std::int64_t blocks = blocks_of(problem);
  const std::int64_t most = problem.seqlen_k <= kFewKeys ? kMostInCluster : kMostParts;
  const std::int64_t count = std::min({sms / blocks, problem.seqlen_k / kFewestKeys, most});
  return with_cluster(std::max<std::int64_t>(count, 1), blocks, sms);
}

struct Timed {
  bool by_unit;
  Parts parts;
  double microseconds;
};

// The usual way, or one that is expected to be faster by more than the rates are off.
Timed timed_parts(const Problem &problem, std::int64_t sms, bool has_unit) {
  constexpr double kSurely = 1.12;
  const std::int64_t heads = heads_of(problem), room = rates_of(problem.head_dim).room * sms;
  const auto by_parts = [&](const Parts &parts) { return Timed{false, parts, microseconds_of_parts(problem, sms, parts)}; };
  const Timed by_unit{true, {1, false}, microseconds_of_unit(problem, sms)};
  const Timed usual = has_unit && 4 * heads >= 3 * sms ? by_unit : by_parts(usual_parts(problem, sms));
  if (!is_measured(problem)) {
    return usual;
  }
  Timed best = has_unit ? by_unit : usual;
  const std::int64_t most = std::clamp<std::int64_t>(problem.seqlen_k / kFewestKeys, 1, kMostParts);
  for (const std::int64_t wanted : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, kMostInCluster,
                                    sms / heads / 2, sms / heads, room / heads, 2 * room / heads}) {
    const std::int64_t count = std::min(wanted, most);
    if (count < 1 || (count == 1 && usual.by_unit) || (count > 3 && count * heads > 2 * room)) {
      continue;
    }
    const Timed way = by_parts(with_cluster(count, heads, sms));
    if (way.microseconds < best.microseconds) {
      best = way;
    }
  }
  return best.microseconds * kSurely < usual.microseconds ? best : usual;
}

bool may_have_unit(const Problem &problem) {
  return problem.seqlen_q == 1 && problem.head_dim > 64 && !problem.packed() && !problem.paged() &&
         problem.windows.unbounded();
}

// Whether the kernels of shares.h can run a call, if its keys can be said by a tensor map.
bool can_share(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  return gpu.major == 9 && args.num_splits == 0 && rows_of(problem) <= kShareRows && args.seqlen_new == 0 &&
         args.rotary_cos == nullptr && args.leftpad_k == nullptr && problem.page_size % kFewestBoxed == 0;
}

bool has_lists(const fa_fwd_args &args) {
  return args.cu_seqlens_q != nullptr || args.cache_seqlens != nullptr || args.seqused_k != nullptr;
}

// Keys that some row sees, of a sequence that has all: from the first until after the last.
struct Seen {
  std::int32_t low, high;
};
Seen seen_of(const Problem &problem) {
  const auto [left, right] = problem.windows;
  return {left >= 0 ? std::max(0, problem.seqlen_k - problem.seqlen_q - left) : 0,
          right >= 0 ? std::min(problem.seqlen_k, problem.seqlen_k + right) : problem.seqlen_k};
}

// Shares that fill the GPU. Of sequences with lengths of their own the kernels divide what they find. Of others blocks begin
// heads at the same time, so that rows of neighbouring heads, which are neighbours in memory, are read together.
Division division_of(const ForwardCall &call, std::int64_t sms) {
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;
  const Problem &problem = call.problem;
  const ShareTile tile = share_tile(problem.head_dim);
  const Seen seen = seen_of(problem);
  const std::int64_t tiles = std::max(1, divide_up(seen.high, tile.keys) - seen.low / tile.keys);
  const std::int64_t heads = heads_of(problem), all = heads * tiles, most = tile.blocks * sms;
  const bool differ = has_lists(call.args);
  std::int64_t blocks = std::clamp<std::int64_t>(std::max(all / tile.warps, differ ? 1 : heads), 1, most), own = 0;
  if (all > kMostTiles) {
    return {};
  }
  if (!differ && heads >= blocks) {
    const std::int64_t few = 2 * tile.warps, left = heads % blocks * tiles / blocks;
    own = heads / blocks - (left < few && heads % blocks != 0 ? 1 : 0);
  } else if (!differ && blocks == most && 100 * (most % heads) <= 4 * most) {
    blocks -= most % heads;
  }
  const std::int64_t shared = all - own * blocks * tiles, each = shared / blocks;
  const bool whole = !differ && shared % blocks == 0 && each % tiles == 0;
  return {number(blocks), differ ? 0 : number(tiles), number(own), number(each), number(shared % blocks),
          whole ? 1 : number(divide_up(tiles - 1, each) + 1)};
}

// What an H200 took for shares (benchmarks/fa4.md): microseconds, and bytes that each SM reads in one.
struct ShareRates {
  double start, bytes, head;  // head: for each key head of an SM
  double four_parts;          // that a block joins
  double joining, row;        // a second kernel, and each row of a part
};
constexpr ShareRates share_rates_of(std::int32_t head_dim) {
  return head_dim <= 64    ? ShareRates{5.25, 33.3e3, 0.32, 0.30, 0.95, 0.0006}
         : head_dim <= 128 ? ShareRates{5.01, 34.0e3, 0.27, 0.53, 1.40, 0.0039}
                           : ShareRates{7.51, 35.2e3, 1.59, 0.76, 2.36, 0.0123};
}

double microseconds_of_shares(const Problem &problem, std::int64_t sms, const Division &division) {
  const ShareRates rates = share_rates_of(problem.head_dim);
  const Seen seen = seen_of(problem);
  const auto heads = static_cast<double>(heads_of(problem)), all_sms = static_cast<double>(sms);
  const double joined = division.most == 1     ? 0.0
                        : joins_inside(division) ? rates.four_parts * ((division.most + 3) / 4)
                                                 : rates.joining + rates.row * division.most * static_cast<double>(rows_of(problem));
  return rates.start + heads * (bytes_of(problem.head_dim, seen.high - seen.low) / rates.bytes + rates.head) / all_sms + joined;
}

// What an H200 took where each key head belongs to one block, or to a few that have nothing else (benchmarks/fa4.md).
struct HeadRates {
  double start;
  Rates rates;
  double joining;
};
constexpr HeadRates head_rates_of(std::int32_t head_dim) {
  return head_dim <= 64    ? HeadRates{2.75, {28.7e3, 43.4e3, 30.8e3, 2}, 1.84}
         : head_dim <= 128 ? HeadRates{3.2, {26.7e3, 47.8e3, 33.6e3, 2}, 2.14}
                           : HeadRates{4.6, {35.2e3, 60.6e3, 30.7e3, 1}, 1.26};
}

struct TimedShares {
  Division division;
  double microseconds;
};

Division of_heads(std::int64_t heads, std::int64_t blocks, std::int64_t tiles) {
  return {number(blocks), number(tiles), number(divide_up(heads, blocks)), 0, 0, 1};
}
Division of_parts(std::int64_t heads, std::int64_t parts, std::int64_t tiles) {
  return {number(heads * parts), number(tiles), 0, number(tiles / parts), 0, number(parts)};
}

// The best division of so many tiles a head in which no block has a part of one head and something of another: whole heads
// for each block, or a few blocks for each head. Of more keys than these, even shares are as fast or faster.
TimedShares by_heads(const Problem &problem, std::int64_t sms, std::int64_t tiles) {
  constexpr std::int64_t kMostHeads = 8, kMostParts = 4, kMostKeys = 1024, kMostKeysOfParts = 2048;
  const ShareTile tile = share_tile(problem.head_dim);
  const HeadRates rates = head_rates_of(problem.head_dim);
  const std::int64_t heads = heads_of(problem);
  TimedShares best{{}, kNever};
  const auto consider = [&](const Division &division, std::int64_t each, double joining) {
    const double bytes = bytes_of(tile.dim, each * tile.keys);  // a smaller head dim takes as long
    const double microseconds = rates.start + of_a_wave(division.blocks, bytes, rates.rates, sms) + joining;
    if (division.blocks <= tile.blocks * sms && microseconds < best.microseconds) {
      best = {division, microseconds};
    }
  };
  for (std::int64_t own = 1; own <= kMostHeads && problem.head_dim <= 64 && tiles * tile.keys <= kMostKeys; ++own) {
    const std::int64_t blocks = divide_up(heads, own);
    if (own == 1 || blocks >= sms) {  // to end several heads takes longer than the rates say, where SMs are left over
      consider(of_heads(heads, blocks, tiles), own * tiles, 0.0);
    }
  }
  for (std::int64_t parts = 2; parts <= kMostParts && tiles * tile.keys <= kMostKeysOfParts; ++parts) {
    if (tiles % parts == 0) {
      consider(of_parts(heads, parts, tiles), tiles / parts, rates.joining);
    }
  }
  return best;
}

// Shares, unless the other way is expected to be faster.
Division timed_shares(const ForwardCall &call, std::int64_t sms, const Timed &other) {
  constexpr double kSurely = 1.05, kSurelyByHeads = 1.03;
  const Problem &problem = call.problem;
  const Division even = division_of(call, sms);
  const double of_even = microseconds_of_shares(problem, sms, even);
  const bool is_even = of_even <= other.microseconds * kSurely;
  if (even.tiles != 0 && !problem.paged()) {
    const TimedShares heads = by_heads(problem, sms, even.tiles);
    if (heads.microseconds * kSurelyByHeads < (is_even ? of_even : other.microseconds)) {
      return heads.division;
    }
  }
  return is_even ? even : Division{};
}

// What an H200 took of fewer than 512 keys (benchmarks/fa4.md): microseconds.
struct FewRates {
  double start;
  double head, row, tile;           // of a block or warp that has one after the other
  double megabyte;                  // in and out
  double sm_head, sm_row, sm_tile;  // of an SM that is full
  double joining;
  std::int64_t warps, room;  // of a block, blocks on an SM
};
constexpr FewRates few_rates_of(std::int32_t head_dim, Block block) {
  switch (block) {
    case Block::usual:
      return head_dim <= 64    ? FewRates{0.76, 2.56, 0, 0.869, 0.274, 0.945, 0.039, 0.222, 0.96, 4, 2}
             : head_dim <= 128 ? FewRates{1.04, 2.38, 0, 0.886, 0.279, 0.997, 0.074, 0.204, 0.93, 4, 2}
                               : FewRates{0.92, 2.73, 0, 1.310, 0.261, 0, 0.544, 0.307, 0.90, 4, 1};
    case Block::small:
      return head_dim <= 64    ? FewRates{2.65, 0.315, 0, 1.02, 0.305, 0.772, 0, 0.062, 0.89, 4, 4}
             : head_dim <= 128 ? FewRates{2.86, 0.608, 0, 1.02, 0.245, 0.503, 0.029, 0.177, 0.73, 4, 4}
                               : FewRates{2.92, 0.752, 0, 1.36, 0.233, 0.539, 0.119, 0.329, 0.86, 4, 3};
    case Block::warp:
      break;
  }
  return head_dim <= 64    ? FewRates{3.30, 0, 0.151, 0.94, 0.298, 0.049, 0.002, 0.190, 0, 1, 20}
         : head_dim <= 128 ? FewRates{3.50, 0, 0.306, 1.04, 0.291, 0, 0.050, 0.204, 0, 1, 16}
                           : FewRates{3.63, 0, 0.671, 1.24, 0.252, 0, 0.124, 0.439, 0, 1, 12};
}
constexpr FewRates few_rates_of_shares(std::int32_t head_dim) {
  return head_dim <= 64    ? FewRates{1.74, 0.293, 0, 1.02, 0.254, 0.798, 0.015, 0.033, 1.21, 4, 2}
         : head_dim <= 128 ? FewRates{1.52, 0.906, 0, 1.18, 0.209, 0.997, 0.054, 0.013, 1.44, 4, 2}
                           : FewRates{2.74, 0, 0, 0, 0.242, 1.55, 0.068, 0.436, 1.25, 8, 1};
}

// Key heads in `parts`, of which a block or warp has `heads` and `tiles` one after the other.
double microseconds_of_few(const Problem &problem, std::int64_t sms, const FewRates &rates, std::int64_t parts,
                           std::int64_t heads, std::int64_t tiles, std::int64_t tiles_of_part) {
  constexpr double kInAndOut = 4.0;  // bytes of an element of q and o
  constexpr double kBeside = 0.15;   // of what is faster than the slowest, what is not hidden
  const Seen seen = seen_of(problem);
  const auto all = static_cast<double>(heads_of(problem)), rows = static_cast<double>(rows_of(problem));
  const double on_sm = static_cast<double>(divide_up(heads_of(problem) * parts, sms));
  const double bytes = all * (bytes_of(problem.head_dim, seen.high - seen.low) + kInAndOut * rows * problem.head_dim);
  const double in_turn = static_cast<double>(heads) * (rates.head + rates.row * rows) + rates.tile * static_cast<double>(tiles);
  const double full = on_sm * (rates.sm_head + rates.sm_row * rows + rates.sm_tile * static_cast<double>(tiles_of_part));
  const double moving = rates.megabyte * bytes / 1e6;
  const double slowest = std::max({in_turn, full, moving});
  return rates.start + (parts > 1 ? rates.joining : 0.0) + slowest + kBeside * (in_turn + full + moving - slowest);
}

// A head by one block, or a few that are a cluster.
Timed few_by_parts(const Problem &problem, std::int64_t sms, std::int64_t tiles) {
  constexpr std::int64_t kMostTilesOfWarp = 4;
  const std::int64_t heads = heads_of(problem), most = 2 * rates_of(problem.head_dim).room * sms;
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
        microseconds_of_few(problem, sms, rates, count, waves, waves * divide_up(of_part, rates.warps), of_part);
    if (microseconds < best.microseconds) {
      best = {false, parts, microseconds};
    }
  };
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, kMostInCluster}) {
    consider(Block::usual, count);
  }
  consider(Block::small, 1);
  consider(Block::small, 2);
  if (tiles <= kMostTilesOfWarp) {
    consider(Block::warp, 1);
  }
  return best;
}

constexpr std::int64_t kFewTiles = 4;

// By shares: whole heads, a grid apart, or a head by a few blocks.
TimedShares few_by_heads(const Problem &problem, std::int64_t sms, std::int64_t tiles, bool differ) {
  constexpr std::int64_t kMostParts = 4;
  const FewRates rates = few_rates_of_shares(problem.head_dim);
  const std::int64_t heads = heads_of(problem), room = rates.room * sms, own = divide_up(heads, room);
  // Blocks with one head less begin others sooner; but where there is more to read, all end at once.
  const std::int64_t blocks = differ || tiles <= kFewTiles ? std::min(heads, room) : divide_up(heads, own);
  TimedShares best{of_heads(heads, blocks, tiles), microseconds_of_few(problem, sms, rates, 1, own,
                                                                       divide_up(own * tiles, rates.warps), tiles)};
  if (problem.head_dim > 128 && heads % blocks != 0) {
    best.microseconds = kNever;  // its kernel has no whole heads for some blocks only
  }
  for (std::int64_t parts = 2; parts <= kMostParts && !differ; ++parts) {
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

Way few_keys_way(const ForwardCall &call, std::int64_t sms) {
  constexpr double kSurelyEven = 1.05;
  const Problem &problem = call.problem;
  const bool differ = has_lists(call.args);
  const Seen seen = seen_of(problem);
  const std::int32_t keys = share_tile(problem.head_dim).keys;  // and of the kernels of decode.h
  const std::int64_t tiles = std::max(1, divide_up(seen.high, keys) - seen.low / keys);
  const Timed parts = few_by_parts(problem, sms, tiles);
  Way way{false, parts.parts, {}};
  // Where lists or pages have to be read first, these are no faster.
  if (problem.paged() || (differ && problem.head_dim > 64)) {
    return way;
  }
  const TimedShares heads = few_by_heads(problem, sms, tiles, differ);
  double least = parts.microseconds;
  if (heads.microseconds < least) {
    way.shares = heads.division, least = heads.microseconds;
  }
  if (const Division even = division_of(call, sms);
      tiles > kFewTiles && even.tiles != 0 && microseconds_of_shares(problem, sms, even) * kSurelyEven < least) {
    way.shares = even;
  }
  return way;
}

Way made_way(const ForwardCall &call, const DeviceFacts &gpu) {
  const Problem &problem = call.problem;
  const std::int64_t sms = gpu.multiprocessors;
  const bool may_share = can_share(call, gpu);
  if (const Seen seen = seen_of(problem); may_share && seen.high - seen.low < kFewestMeasured) {
    return few_keys_way(call, sms);
  }
  const Timed best = timed_parts(problem, sms, may_have_unit(problem));
  Way way{best.by_unit, best.parts, {}};
  if (best.by_unit) {
    way.parts = timed_parts(problem, sms, false).parts;
  }
  if (call.args.num_splits != 0) {
    way.parts = with_cluster(call.args.num_splits, blocks_of(problem), sms);
  } else if (may_share) {
    way.shares = timed_shares(call, sms, best);
    way.by_unit = way.by_unit && way.shares.blocks == 0;
  }
  return way;
}

// All that a way depends on, of one call after another.
using Question = std::array<std::int32_t, 16>;

Question question_of(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  return {problem.batch, problem.seqlen_q, problem.seqlen_k, problem.heads_q, problem.heads_k, problem.head_dim,
          problem.windows.left, problem.windows.right, static_cast<std::int32_t>(problem.kind), problem.page_size,
          args.num_splits, args.seqlen_new, args.leftpad_k != nullptr, args.rotary_cos != nullptr, has_lists(args),
          gpu.major * 1024 + gpu.multiprocessors};
}

}  // namespace

bool joins_inside(const Division &division) { return division.most <= 16; }

std::int64_t rows_of(const Problem &problem) {
  return std::int64_t{problem.seqlen_q} * (problem.heads_q / problem.heads_k);
}

std::int64_t tiles_of(const Problem &problem) {
  const std::int32_t rows = most_rows(problem.head_dim);
  return problem.heads_k * divide_up(rows_of(problem), rows);
}

Way way_of(const ForwardCall &call, const DeviceFacts &gpu) {
  // A call asks several times, and so do the layers of a model.
  thread_local struct {
    Question question;
    Way way;
  } last;
  const Question question = question_of(call, gpu);
  if (question != last.question) {
    last = {question, made_way(call, gpu)};
  }
  return last.way;
}

}  // namespace flashdepot::fa4
