// How all key heads are divided by the kernels of shares.h, and what that takes.
#include <algorithm>

#include "divide.h"
#include "fa4/shares.h"
#include "fa4/ways.h"

namespace flashdepot::fa4 {
namespace {

std::int32_t number(std::int64_t n) { return static_cast<std::int32_t>(n); }

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

}  // namespace

bool joins_inside(const Division &division) { return division.most <= 16; }

std::int64_t heads_of(const Problem &problem) {
  return std::max<std::int64_t>(std::int64_t{problem.batch} * problem.heads_k, 1);
}

double bytes_of(std::int32_t head_dim, std::int64_t keys) {
  constexpr double kKeyAndValue = 4.0;  // bytes of an element of each
  return kKeyAndValue * static_cast<double>(keys) * head_dim;
}

bool has_lists(const fa_fwd_args &args) {
  return args.cu_seqlens_q != nullptr || args.cache_seqlens != nullptr || args.seqused_k != nullptr;
}

Seen seen_of(const Problem &problem) {
  const auto [left, right] = problem.windows;
  return {left >= 0 ? std::max(0, problem.seqlen_k - problem.seqlen_q - left) : 0,
          right >= 0 ? std::min(problem.seqlen_k, problem.seqlen_k + right) : problem.seqlen_k};
}

std::int64_t tiles_seen(const Problem &problem) {
  const std::int32_t keys = share_tile(problem.head_dim).keys;
  const Seen seen = seen_of(problem);
  return std::max(1, divide_up(seen.high, keys) - seen.low / keys);
}

// Shares that fill the GPU. Of sequences with lengths of their own the kernels divide what they find. Of others blocks begin
// heads at the same time, so that rows of neighbouring heads, which are neighbours in memory, are read together.
Division even_shares(const ForwardCall &call, std::int64_t sms) {
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;
  const Problem &problem = call.problem;
  const ShareTile tile = share_tile(problem.head_dim);
  const std::int64_t tiles = tiles_seen(problem);
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

Division of_heads(std::int64_t heads, std::int64_t blocks, std::int64_t tiles) {
  return {number(blocks), number(tiles), number(divide_up(heads, blocks)), 0, 0, 1};
}
Division of_parts(std::int64_t heads, std::int64_t parts, std::int64_t tiles) {
  return {number(heads * parts), number(tiles), 0, number(tiles / parts), 0, number(parts)};
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

}  // namespace flashdepot::fa4
