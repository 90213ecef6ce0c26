// What parts.cpp and few_keys.cpp choose among, and what they both ask.
#pragma once

#include "fa4/parts.h"

namespace flashdepot::fa4 {

constexpr double kNever = 1e30;  // microseconds

// A way, and the microseconds that it is expected to take on an H200 (benchmarks/fa4.md).
struct Timed {
  bool by_unit;
  Parts parts;
  double microseconds;
};
struct TimedShares {
  Division division;
  double microseconds;
};

// Key heads of all sequences.
[[nodiscard]] std::int64_t heads_of(const Problem &problem);

// Of keys and values.
[[nodiscard]] double bytes_of(std::int32_t head_dim, std::int64_t keys);

// Whether sequences have lengths of their own.
[[nodiscard]] bool has_lists(const fa_fwd_args &args);

// Keys that some row sees, of a sequence that has all: from the first until after the last.
struct Seen {
  std::int32_t low, high;
};
[[nodiscard]] Seen seen_of(const Problem &problem);

// Tiles of the kernels of shares.h with such keys.
[[nodiscard]] std::int64_t tiles_seen(const Problem &problem);

// So many parts of each of `blocks`.
[[nodiscard]] Parts with_cluster(std::int64_t count, std::int64_t blocks, std::int64_t sms);

// Even shares, heads of so many tiles that blocks have to themselves, and heads in so many parts.
[[nodiscard]] Division even_shares(const ForwardCall &call, std::int64_t sms);
[[nodiscard]] Division of_heads(std::int64_t heads, std::int64_t blocks, std::int64_t tiles);
[[nodiscard]] Division of_parts(std::int64_t heads, std::int64_t parts, std::int64_t tiles);

[[nodiscard]] double microseconds_of_shares(const Problem &problem, std::int64_t sms, const Division &division);

// Keys that queries see, from which the rates of parts.cpp and division.cpp hold; of fewer, and of some more, those of
// few_keys.cpp.
constexpr std::int32_t kFewestMeasured = 512;

// A block for each head, or a few that are a cluster, of so many tiles of keys. differ: lists or pages have to be read first.
[[nodiscard]] Timed few_by_parts(const Problem &problem, std::int64_t sms, std::int64_t tiles, bool differ);

// The way of a call that shares can do.
[[nodiscard]] Way few_keys_way(const ForwardCall &call, std::int64_t sms);

}  // namespace flashdepot::fa4
