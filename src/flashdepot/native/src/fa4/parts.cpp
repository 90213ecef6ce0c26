#include "fa4/parts.h"

#include <algorithm>
#include <cstdint>

#include "fa4/decode.h"

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

double bytes_of(const Problem &problem, std::int64_t keys) {
  constexpr double kKeyAndValue = 4.0;  // bytes of an element of each
  return kKeyAndValue * static_cast<double>(keys) * problem.head_dim;
}

double microseconds_of_parts(const Problem &problem, std::int64_t sms, const Parts &parts) {
  const Rates rates = rates_of(problem.head_dim);
  const std::int64_t tile = problem.head_dim <= 64 ? 32 : 16;
  const std::int64_t tiles = (problem.seqlen_k + tile - 1) / tile;
  const std::int64_t blocks = heads_of(problem) * parts.count;
  const double longest = bytes_of(problem, (tiles + parts.count - 1) / parts.count * tile);
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
  return of_blocks(heads_of(problem), bytes_of(problem, problem.seqlen_k), kUnit, sms) + 5.0;
}

Parts with_cluster(std::int64_t count, std::int64_t blocks, std::int64_t sms) {
  // Pairs always find room; of larger clusters some SMs of each part of the GPU are left over.
  const bool is_cluster = (count > 1 && count <= 4) || count == kMostInCluster;
  const bool in_cluster = is_cluster && (count == 2 || 11 * count * blocks <= 10 * sms);
  return {static_cast<std::int32_t>(count), in_cluster};
}

std::int64_t rows_of(const Problem &problem) {
  return std::int64_t{problem.seqlen_q} * (problem.heads_q / problem.heads_k);
}

// A block for each SM; a second kernel costs more than SMs without one where keys are few.
Parts usual_parts(const Problem &problem, std::int64_t sms) {
  constexpr std::int64_t kFewKeys = 2048;
  const std::int64_t rows = most_rows(problem.head_dim);
  const std::int64_t blocks = heads_of(problem) * ((rows_of(problem) + rows - 1) / rows);
  const std::int64_t most = problem.seqlen_k <= kFewKeys ? kMostInCluster : kMostParts;
  const std::int64_t count = std::min({sms / blocks, problem.seqlen_k / kFewestKeys, most});
  return with_cluster(std::max<std::int64_t>(count, 1), blocks, sms);
}

struct Way {
  bool by_unit;
  Parts parts;
  double microseconds;
};

// The usual way, or one that is expected to be faster by more than the rates are off.
Way way_of(const Problem &problem, std::int64_t sms, bool has_unit) {
  constexpr double kSurely = 1.12;
  constexpr std::int32_t kFewestMeasured = 512;  // keys
  const std::int64_t heads = heads_of(problem), room = rates_of(problem.head_dim).room * sms;
  const auto by_parts = [&](const Parts &parts) { return Way{false, parts, microseconds_of_parts(problem, sms, parts)}; };
  const Way by_unit{true, {1, false}, microseconds_of_unit(problem, sms)};
  const Way usual = has_unit && 4 * heads >= 3 * sms ? by_unit : by_parts(usual_parts(problem, sms));
  if (rows_of(problem) > 8 || problem.seqlen_k < kFewestMeasured) {
    return usual;
  }
  Way best = has_unit ? by_unit : usual;
  const std::int64_t most = std::clamp<std::int64_t>(problem.seqlen_k / kFewestKeys, 1, kMostParts);
  for (const std::int64_t wanted : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, kMostInCluster,
                                    sms / heads / 2, sms / heads, room / heads, 2 * room / heads}) {
    const std::int64_t count = std::min(wanted, most);
    if (count < 1 || (count == 1 && usual.by_unit) || (count > 3 && count * heads > 2 * room)) {
      continue;
    }
    const Way way = by_parts(with_cluster(count, heads, sms));
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

}  // namespace

Parts parts_of(const ForwardCall &call, const DeviceFacts &gpu) {
  const Problem &problem = call.problem;
  const std::int64_t sms = gpu.multiprocessors;
  if (call.args.num_splits != 0) {
    const std::int64_t rows = most_rows(problem.head_dim);
    return with_cluster(call.args.num_splits, heads_of(problem) * ((rows_of(problem) + rows - 1) / rows), sms);
  }
  const Way way = way_of(problem, sms, may_have_unit(problem));
  return way.by_unit ? way_of(problem, sms, false).parts : way.parts;
}

bool unit_is_faster(const Problem &problem, const DeviceFacts &gpu) {
  return may_have_unit(problem) && way_of(problem, gpu.multiprocessors, true).by_unit;
}

}  // namespace flashdepot::fa4
