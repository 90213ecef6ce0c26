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
    return reading + 5.4;
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
  return rows_of(problem) <= 8 && problem.seqlen_k >= kFewestMeasured;
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
  const auto number = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
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

// The best division of so many tiles a head in which no block has a part of one head and something of another: whole heads
// for each block, or a few blocks for each head. Of more keys than these, even shares are as fast or faster.
TimedShares by_heads(const Problem &problem, std::int64_t sms, std::int64_t tiles) {
  constexpr std::int64_t kMostHeads = 8, kMostParts = 4, kMostKeysOfParts = 2048;
  const std::int64_t most_keys = problem.head_dim <= 64 ? 1024 : 512;
  const ShareTile tile = share_tile(problem.head_dim);
  const HeadRates rates = head_rates_of(problem.head_dim);
  const std::int64_t heads = heads_of(problem);
  TimedShares best{{}, 1e30};
  const auto consider = [&](std::int64_t own, std::int64_t parts) {
    const std::int64_t blocks = heads * parts / own, each = own * tiles / parts;
    if (heads % own != 0 || tiles % parts != 0 || blocks > tile.blocks * sms || (own > 1 && blocks < sms)) {
      return;  // to end several heads takes longer than the rates say, where SMs are left over
    }
    const double bytes = bytes_of(tile.dim, each * tile.keys);  // a smaller head dim takes as long
    const double microseconds = rates.start + of_a_wave(blocks, bytes, rates.rates, sms) +
                                (parts > 1 ? rates.joining : 0.0);
    if (microseconds < best.microseconds) {
      const auto number = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
      best = {{number(blocks), number(tiles), own > 1 ? number(own) : 0, own > 1 ? 0 : number(each), 0, number(parts)},
              microseconds};
    }
  };
  for (std::int64_t own = 1; own <= kMostHeads && tiles * tile.keys <= most_keys; ++own) {
    consider(own, 1);
  }
  for (std::int64_t parts = 2; parts <= kMostParts && tiles * tile.keys <= kMostKeysOfParts; ++parts) {
    consider(1, parts);
  }
  return best;
}

// Shares, unless the other way is expected to be faster. Few keys were measured where all sequences have as many, in no pages.
Division timed_shares(const ForwardCall &call, std::int64_t sms, const Timed &other) {
  constexpr double kSurely = 1.05, kSurelyByHeads = 1.03;
  const Problem &problem = call.problem;
  const Seen seen = seen_of(problem);
  const Division even = division_of(call, sms);
  const bool is_few = seen.high - seen.low < kFewestMeasured;
  const bool is_plain = even.tiles != 0 && !problem.paged() && seen.high > seen.low;
  if (is_few && !is_plain) {
    return {};
  }
  const double of_even = microseconds_of_shares(problem, sms, even);
  const bool is_even = is_few ? of_even * kSurely < other.microseconds && !other.parts.in_cluster
                              : of_even <= other.microseconds * kSurely;
  if (is_plain) {
    const TimedShares heads = by_heads(problem, sms, even.tiles);
    if (heads.microseconds * kSurelyByHeads < (is_even ? of_even : other.microseconds)) {
      return heads.division;
    }
  }
  return is_even ? even : Division{};
}

Way made_way(const ForwardCall &call, const DeviceFacts &gpu) {
  const Problem &problem = call.problem;
  const std::int64_t sms = gpu.multiprocessors;
  Timed best = timed_parts(problem, sms, may_have_unit(problem));
  Way way{best.by_unit, best.parts, {}};
  if (best.by_unit) {
    way.parts = timed_parts(problem, sms, false).parts;
  }
  if (call.args.num_splits != 0) {
    way.parts = with_cluster(call.args.num_splits, blocks_of(problem), sms);
  } else if (can_share(call, gpu)) {
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
