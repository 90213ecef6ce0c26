#include "fa4/parts.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "divide.h"
#include "fa4/decode.h"
#include "fa4/shares.h"
#include "fa4/ways.h"

namespace flashdepot::fa4 {
namespace {

constexpr std::int64_t kFewestKeys = 64;  // of a part

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
bool is_measured(const Problem &problem) {
  return rows_of(problem) <= kShareRows && problem.seqlen_k >= kFewestMeasured;
}

// Without parts.
std::int64_t blocks_of(const Problem &problem) {
  return std::max<std::int64_t>(problem.batch * tiles_of(problem), 1);
}

// A block for each SM; a second kernel costs more than SMs without one where keys are few.
Parts usual_parts(const Problem &problem, std::int64_t sms) {
  constexpr std::int64_t kFewKeys = 2048;
  const std::int64_t blocks = blocks_of(problem);
  const std::int64_t most = problem.seqlen_k <= kFewKeys ? std::int64_t{kMostInCluster} : std::int64_t{kMostParts};
  const std::int64_t count = std::min({sms / blocks, problem.seqlen_k / kFewestKeys, most});
  return with_cluster(std::max<std::int64_t>(count, 1), blocks, sms);
}

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
  const std::int64_t most = std::clamp<std::int64_t>(problem.seqlen_k / kFewestKeys, 1, std::int64_t{kMostParts});
  for (const std::int64_t wanted : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4},
                                    std::int64_t{kMostInCluster}, sms / heads / 2, sms / heads, room / heads, 2 * room / heads}) {
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
  const Division even = even_shares(call, sms);
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

Way made_way(const ForwardCall &call, const DeviceFacts &gpu) {
  constexpr std::int32_t kManyKeysOfLists = 1024;
  constexpr std::int32_t kMostOfHeads = 4;  // blocks of one head, where shares are not even
  constexpr double kSurelyFew = 1.02;
  const Problem &problem = call.problem;
  const std::int64_t sms = gpu.multiprocessors, heads = heads_of(problem);
  const bool may_share = can_share(call, gpu);
  const Seen seen = seen_of(problem);
  const std::int32_t keys = seen.high - seen.low;
  const bool differ = problem.paged() || has_lists(call.args);
  // By even shares these would take longer.
  const bool until_more = differ && (problem.head_dim <= 64 || (problem.head_dim <= 128 ? !problem.paged() : 2 * heads >= sms));
  if (may_share && keys < (until_more ? kManyKeysOfLists : kFewestMeasured)) {
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
    if (const std::int32_t many_keys = problem.head_dim <= 64 ? 2048 : 1408;
        !differ && keys < many_keys && way.shares.most > kMostOfHeads) {
      // A cluster for each of few heads is faster than the rates above say.
      const Timed few = few_by_parts(problem, sms, tiles_seen(problem), differ);
      if (few.parts.count > 1 && few.microseconds < kSurelyFew * microseconds_of_shares(problem, sms, way.shares)) {
        way = {false, few.parts, {}};
      }
    }
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

Parts with_cluster(std::int64_t count, std::int64_t blocks, std::int64_t sms) {
  // Pairs always find room; of larger clusters some SMs of each part of the GPU are left over.
  const bool is_cluster = (count > 1 && count <= 4) || count == kMostInCluster;
  const bool in_cluster = is_cluster && (count == 2 || 11 * count * blocks <= 10 * sms);
  return {static_cast<std::int32_t>(count), in_cluster};
}

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
