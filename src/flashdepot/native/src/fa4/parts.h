// How the keys of few queries are divided among blocks.
#pragma once

#include "fa4/decode.h"
#include "family.h"

namespace flashdepot::fa4 {

// Of each key head, by the kernels of decode.h.
struct Parts {
  std::int32_t count;
  bool in_cluster;  // they are joined in shared memory, and not by a second kernel
  Block block = Block::usual;
};

// Of all key heads, by those of shares.h.
struct Division {
  std::int32_t blocks;      // 0: another way is faster, or the only one
  std::int32_t tiles;       // of each key head; 0: sequences differ
  std::int32_t own;       // heads that each block has to itself
  std::int32_t each, rest;  // tiles of the others that a block has, and blocks that have one more
  std::int32_t most;        // blocks with keys of one key head, of sequences that have all
};

// Whether blocks join what they end, because no second kernel would do it in less time.
[[nodiscard]] bool joins_inside(const Division &division);

struct Way {
  bool by_unit;  // kernels for many queries are faster, of which a block takes all keys of a key head
  Parts parts;   // without them
  Division shares;
};

[[nodiscard]] Way way_of(const ForwardCall &call, const DeviceFacts &gpu);

// Rows of queries for each key head of a sequence.
[[nodiscard]] std::int64_t rows_of(const Problem &problem);

// Key heads of a sequence, times the tiles of decode.h that their rows take.
[[nodiscard]] std::int64_t tiles_of(const Problem &problem);

}  // namespace flashdepot::fa4
