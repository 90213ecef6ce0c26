// Few queries over many keys by blocks that have even shares of all keys of all sequences.
#pragma once

#include <cuda.h>

#include "fa4/decode.h"

namespace flashdepot::fa4 {

constexpr std::int32_t kShareRows = 8;  // of queries for each key head, at most

// A tile is the keys that a warp has at once. Blocks have some key heads to themselves, neighbouring ones at the same time,
// and after these the tiles of the others one after the other, so that one may end a head that others began, and begin one
// that others end: such heads are joined by the block that ends them, or by a second kernel. A block waits only for blocks
// with lower numbers, which Hopper begins before it, so that none waits for one that finds no room.
struct Shares {
  CUtensorMap k, v;
  Decoding p;    // o_parts (2 * blocks, rows, head_dim), lse_parts (2 * blocks, rows): see slot_of in shares.cuh
  int4 *joints;  // (batch, heads_k), for a second kernel: first and last block of a head, first row of q, and queries
  unsigned long long *flags;  // (blocks): `tag` where the last part of a block is written
  unsigned long long tag;     // that no other call has; 0: a second kernel joins
  std::int32_t rows;          // of queries for each key head
  std::int32_t box;           // keys that are copied at once: of a tile, or fewer where pages are smaller
  std::int32_t blocks, tiles;  // tiles: of each key head; 0: sequences differ
  std::int32_t own;          // heads that each block has to itself, a grid apart; the others are shared
  std::int32_t each, rest;     // of the others: tiles of a block, and blocks that have one more
};

// What the kernels take of a head dim.
struct ShareTile {
  std::int32_t dim, warps, keys, ahead;  // keys: of a warp
  std::int32_t blocks;                   // that an SM has room for
};
constexpr ShareTile share_tile(std::int32_t head_dim) {
  return head_dim <= 64    ? ShareTile{64, 4, 32, 3, 2}
         : head_dim <= 128 ? ShareTile{128, 4, 16, 2, 2}
                           : ShareTile{256, 8, 16, 1, 1};
}
constexpr std::int32_t kFewestBoxed = 16;  // keys

// Sets the tensor maps and the box. False if the driver cannot say these keys by a map.
// total_k: rows of packed keys.
[[nodiscard]] bool map_keys(Shares &shares, std::int32_t dtype, std::int64_t total_k);

// dtype: FA_DTYPE_FP16 or FA_DTYPE_BF16.
[[nodiscard]] fa_status launch_shares(const Shares &shares, std::int32_t dtype, cudaStream_t stream);

}  // namespace flashdepot::fa4
