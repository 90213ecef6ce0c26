// The kernels behind shares.h.
//
// Scores are made as in decode.cuh. Warps take turns at the tiles of a block, which one more warp has the tensor memory
// accelerator copy to shared memory several tiles ahead, across the ends of heads and sequences. Warps meet when a block
// has no more keys of a head.
//
// So few warps are on an SM that each instruction takes some cycles: what can be known before the kernel before has ended
// is worked out until then, and lanes share what is the same for all columns of a row.
#pragma once

#include <type_traits>

#include "fa4/decode.cuh"
#include "fa4/shares.h"

namespace flashdepot::fa4 {

template <int Dim>
struct ShareShape {
  static constexpr ShareTile kTile = share_tile(Dim);
  static constexpr int kWarps = kTile.warps, kKeys = kTile.keys, kAhead = kTile.ahead;
  static constexpr int kThreads = kWarps * 32, kAllThreads = kThreads + 32;  // with the warp that copies
  static constexpr int kRows = kShareRows;
  static constexpr int kTileBytes = kKeys * Dim * 2;  // in shared memory: (Dim / 64, kKeys, 64), 128 bytes swizzled
  static constexpr int kSlots = kWarps * kAhead;      // of a tile of keys and one of values
  static constexpr int kRing = kSlots * 2 * kTileBytes;
  static constexpr int kSumBytes = kWarps * kRows * Dim * 4;
  static constexpr int kShared = kRing + kSumBytes + 2 * kWarps * kRows * 4 + 3 * kSlots * 8;
};

constexpr int kMostShares = 1024;

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 900

__device__ inline void init_barrier(std::uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void expect_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void wait_for_bytes(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}
// Of the warps that work on tiles.
template <int Threads>
__device__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}
// Keys and values are read once: what others have in the L2 cache stays there longer.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap *map, std::uint32_t barrier, int column, int row,
                                int head, int sequence) {
  constexpr unsigned long long kEvictFirst = 0x12F0000000000000ull;
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(sequence), "l"(kEvictFirst)
      : "memory");
}

// The block that has a tile.
__device__ inline int block_of(int tile, int each, int rest) {
  const int longer = rest * (each + 1);
  return tile < longer ? tile / (each + 1) : rest + (tile - longer) / each;
}

__device__ inline void tell(unsigned long long *flag, unsigned long long tag) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(tag) : "memory");
}
__device__ inline void await(const unsigned long long *flag, unsigned long long tag) {
  unsigned long long seen;
  do {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(flag) : "memory");
  } while (seen != tag);
}

// WholeHeads: those of a block may be a grid apart, of sequences that differ too. Even shares are compiled without (benchmarks/fa4.md).
template <typename T, int Dim, bool WholeHeads>
struct ShareKernel : ShareShape<Dim> {
  using Shape = ShareShape<Dim>;
  using Shape::kRows, Shape::kSlots, Shape::kThreads, Shape::kTileBytes;
  static constexpr int Warps = Shape::kWarps, Keys = Shape::kKeys, Ahead = Shape::kAhead;
  static constexpr int kBlocks = Keys / 16, kGroups = (Warps + 3) / 4;  // of four warps
  using Rows = DecodeKernel<T, DecodeShape<Dim, 1, Warps, Keys, 1>>;
  static constexpr int kQuarters = Dim / 4, kItems = kRows * kQuarters / kThreads;
  static_assert(kRows * kQuarters % kThreads == 0);

  // Four columns of a row, of which a thread makes kItems at the end of a head: where they are in o.
  struct Item {
    int row, column, query, member;
    std::int64_t o;
  };
  static __device__ Item item_of(const Decoding &p, int i) {
    const int index = threadIdx.x + i * kThreads;
    Item item;
    item.row = index / kQuarters, item.column = index % kQuarters * 4;
    item.query = item.row / p.group, item.member = item.row % p.group;
    item.o = item.query * p.o.row + item.member * p.o.head + item.column;
    return item;
  }
  static __device__ void deliver(const Decoding &p, const Item &item, int b, int head, int q_first, const float4 &sum,
                                 float factor, float lse) {
    const bool packed = p.cu_seqlens_q != nullptr;
    const int first = head * p.group;
    T *at = static_cast<T *>(p.o.data) + (packed ? q_first * p.o.row : b * p.o.batch) + first * p.o.head + item.o;
    write_four(at, sum, factor);
    if (item.column == 0) {
      const std::int64_t member = first + item.member;
      p.lse[packed ? member * p.total_q + q_first + item.query
                   : (b * (p.heads_k * p.group) + member) * p.seqlen_q + item.query] = lse;
    }
  }

  // A key head of a sequence.
  struct Cursor {
    int b, head;
    int begin, tiles;       // its first tile, counted from the first one of the block, and how many
    int length, low, high;  // keys, the first that any row sees, and after the last
    int queries;
    int q_first, k_first;  // rows before the sequence's
    int own;             // heads that the block has to itself from this one on
    int index;             // of the sequence, in k and v

    __device__ int key_of(int tile) const { return (low / Keys + tile - begin) * Keys; }
    __device__ int end() const { return begin + tiles; }
    __device__ bool has(int tile) const { return key_of(tile) < high; }
  };

  static __device__ void enter(const Decoding &p, Cursor &c, int b) {
    c.b = c.index = b;
    c.length = p.seqlen_k, c.queries = p.seqlen_q;
    c.q_first = c.k_first = 0;
    if (b < p.batch) {
      if (p.cu_seqlens_q != nullptr) {
        c.q_first = p.cu_seqlens_q[b];
        c.queries = p.cu_seqlens_q[b + 1] - c.q_first;
        const int k_first = p.cu_seqlens_k[b];
        c.length = p.cu_seqlens_k[b + 1] - k_first;
        c.index = 0;
        if (p.block_table == nullptr) c.k_first = k_first;
      }
      if (p.used_k != nullptr) c.length = p.used_k[b];
      if (p.batch_index != nullptr) c.index = p.batch_index[b];
    }
    const int shift = c.length - c.queries;
    c.low = p.left >= 0 ? max(0, shift - p.left) : 0;
    c.high = p.right >= 0 ? min(c.length, c.length + p.right) : c.length;
    if (c.queries == 0) c.high = c.low;
    c.tiles = max(1, (c.high + Keys - 1) / Keys - c.low / Keys);  // at least one, so that its rows are written
  }
  static __device__ int tiles_of(const Decoding &p, int b) {
    Cursor c;
    enter(p, c, b);
    return c.tiles;
  }
  static __device__ void move_on(const Shares &shares, Cursor &c, const Cursor &last) {
    const Decoding &p = shares.p;
    if (c.own > 0) {
      const int begin = c.begin + c.tiles, own = c.own - 1;
      if (own == 0) {
        c = last;
        c.begin += begin;
        return;
      }
      const int next = c.b * p.heads_k + c.head + shares.blocks;
      enter(p, c, next / p.heads_k);
      c.head = next % p.heads_k, c.begin = begin, c.own = own;
      return;
    }
    c.begin += c.tiles;
    if (++c.head < p.heads_k) return;
    c.head = 0;
    enter(p, c, c.b + 1);
    c.own = 0;
  }

  static __device__ int all_tiles(const Decoding &p, int lane) {
    int sum = 0;
    for (int b = lane; b < p.batch; b += 32) sum += tiles_of(p, b);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    return sum * p.heads_k;
  }

  static __device__ Cursor cursor_at(const Shares &shares, int tile, int lane) {
    const Decoding &p = shares.p;
    int b = 0, within = tile;
    if (shares.tiles != 0) {
      b = within / (shares.tiles * p.heads_k);
      within -= b * (shares.tiles * p.heads_k);
    } else {
      for (;; b += 32) {
        const int mine = b + lane < p.batch ? tiles_of(p, b + lane) * p.heads_k : 0;
        int sum = mine;
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
          const int before = __shfl_up_sync(~0u, sum, apart);
          if (lane >= apart) sum += before;
        }
        const unsigned past = __ballot_sync(~0u, sum > within);
        if (past != 0) {
          const int which = __ffs(past) - 1;
          within -= __shfl_sync(~0u, sum - mine, which);
          b += which;
          break;
        }
        within -= __shfl_sync(~0u, sum, 31);
      }
    }
    Cursor c;
    enter(p, c, b);
    c.head = within / c.tiles;
    c.begin = tile - within % c.tiles;
    return c;
  }

  // What a block has; as far as a look at memory is not needed, before the kernel before has ended.
  struct Share {
    int end;  // tiles
    Cursor first;
    Cursor shared;  // the first head that others may have begun; its place as if the block had nothing before it
    int from;  // the block that begins it
  };

  static __device__ bool differ(const Decoding &p) { return p.used_k != nullptr || p.cu_seqlens_q != nullptr; }

  // Whole heads, a grid apart.
  static __device__ void enter_heads(const Shares &shares, Share &share, int lane) {
    const Decoding &p = shares.p;
    const int block = blockIdx.x, blocks = shares.blocks;
    const int own = (p.batch * p.heads_k - block + blocks - 1) / blocks;
    enter(p, share.first, block / p.heads_k);
    share.first.head = block % p.heads_k;
    share.first.begin = 0, share.first.own = own;
    share.shared = share.first, share.from = block;
    share.end = own * shares.tiles;
    if (!differ(p)) return;
    int sum = 0;
    for (int i = lane; i < own; i += 32) sum += tiles_of(p, (block + i * blocks) / p.heads_k);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    share.end = sum;
  }

  static __device__ bool enter_share(const Shares &shares, Share &share, int lane) {
    const int block = blockIdx.x;
    int blocks = shares.blocks, each = shares.each, rest = shares.rest;
    if constexpr (WholeHeads) {
      if (shares.own > 0 && each + rest == 0) {
        enter_heads(shares, share, lane);
        return true;
      }
    }
    if (shares.tiles == 0) {
      const int all = all_tiles(shares.p, lane);
      blocks = min(blocks, all);
      each = all / blocks, rest = all - each * blocks;
      if (block >= blocks) return false;
    }
    const int before = shares.own * shares.blocks * shares.tiles;  // of heads that are not shared
    const int begin = tile_of(block, each, rest), end = tile_of(block + 1, each, rest);
    share.shared = cursor_at(shares, before + begin, lane);
    share.shared.begin -= before;
    share.from = share.shared.begin < begin ? block_of(share.shared.begin, each, rest) : block;
    share.shared.begin -= begin;
    share.shared.own = 0;
    share.first = share.shared;
    share.end = shares.own * shares.tiles + end - begin;
    if (shares.own > 0) {
      enter(shares.p, share.first, block / shares.p.heads_k);
      share.first.head = block % shares.p.heads_k;
      share.first.begin = 0, share.first.own = shares.own;
    }
    return true;
  }

  // The tiles in their order, into slots as they become free.
  static __device__ void copy(const Shares &shares, const Share &share, std::uint32_t ring, std::uint32_t barriers) {
    const Decoding &p = shares.p;
    const bool paged = p.block_table != nullptr, halves = Keys > 16 && shares.box != Keys;
    Cursor c = share.first;
    int slot = 0;
    std::uint32_t parity = 1;
#pragma unroll 1
    for (int tile = 0; tile < share.end; ++tile) {
      if (tile >= c.end()) move_on(shares, c, share.shared);
      const std::uint32_t full = barriers + slot * 24, to = ring + slot * 2 * kTileBytes;
      const int key = c.key_of(tile);
      int row = c.k_first + key, sequence = c.index, next = 0, next_page = 0;
      const bool there = key < c.high;
      if (paged && there) {
        const std::int32_t *pages = p.block_table + c.b * p.block_table_stride;
        sequence = pages[key / p.page_size];
        row = key % p.page_size;
        if (halves) {
          next_page = pages[min(key + Keys / 2, c.high - 1) / p.page_size];
          next = (key + Keys / 2) % p.page_size;
        }
      }
      wait_for_bytes(full + 16, parity);  // until it is free
#pragma unroll
      for (int values = 0; values < 2; ++values) {
        if (!there) {
          arrive(full + values * 8);
          continue;
        }
        const CUtensorMap *map = values ? &shares.v : &shares.k;
        expect_bytes(full + values * 8, kTileBytes);
#pragma unroll
        for (int i = 0; i < Dim / 64; ++i) {
          copy_box(to + values * kTileBytes + i * Keys * 128, map, full + values * 8, i * 64, row, c.head, sequence);
        }
        if (halves) {
#pragma unroll
          for (int i = 0; i < Dim / 64; ++i) {
            copy_box(to + values * kTileBytes + i * Keys * 128 + Keys / 2 * 128, map, full + values * 8, i * 64, next,
                     c.head, next_page);
          }
        }
      }
      if (++slot == kSlots) slot = 0, parity ^= 1;
    }
  }

  static __device__ void run(const Shares &shares) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Decoding &p = shares.p;
    float *const sums = reinterpret_cast<float *>(shared + Shape::kRing);
    float *const largest = sums + Warps * kRows * Dim;  // (Warps, kRows)
    float *const weight = largest + Warps * kRows;      // likewise
    // Of each slot: keys are there, values are there, it is free.
    const std::uint32_t ring = shared_address(shared), barriers = shared_address(weight + Warps * kRows);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < kSlots * 3) {
      init_barrier(barriers + threadIdx.x * 8);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x == kThreads) {
      asm volatile("prefetch.tensormap [%0];" ::"l"(&shares.k) : "memory");
      asm volatile("prefetch.tensormap [%0];" ::"l"(&shares.v) : "memory");
    }
    Item items[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) items[i] = item_of(p, i);
    const int my_row = lane / 4;
    const std::int64_t q_of_row = my_row / p.group * p.q.row + my_row % p.group * p.q.head + lane % 4 * 2;
    Share share;
    const bool known = shares.tiles != 0 && p.batch_index == nullptr && !(WholeHeads && differ(p));
    if (known) enter_share(shares, share, lane);
    __syncthreads();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");  // what joins the parts waits for all of them
    if (!known && !enter_share(shares, share, lane)) return;
    if (warp == Warps) {
      if (lane == 0) copy(shares, share, ring, barriers);
      return;
    }
    const int end = share.end, block = blockIdx.x;
    Cursor cur = share.first;

    // first: the first tile of the warp that it might have of this head. Without one it needs no queries.
    const auto read_q = [&](std::uint32_t (&to)[Dim / 16][2], const Cursor &c, int first) {
      const T *at = static_cast<const T *>(p.q.data) + (p.cu_seqlens_q != nullptr ? c.q_first * p.q.row : c.b * p.q.batch) +
                    std::int64_t{c.head} * p.group * p.q.head + q_of_row;
      const bool there = first < min(end, c.end()) && my_row < c.queries * p.group;
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = k * 16 + i * 8;
          to[k][i] = there && column < p.head_dim ? *reinterpret_cast<const std::uint32_t *>(at + column) : 0u;
        }
      }
    };
    const float to_log2 = p.softcap > 0.0f ? p.softcap * kLog2E : p.scale * kLog2E;
    const float to_cap = p.softcap > 0.0f ? p.scale / p.softcap : 0.0f;

    // Bytes from the beginning of a tile, for each 16 of 64 columns: chunks of 16 bytes are where row % 8 turns them.
    std::uint32_t k_lane[4], v_lane[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      k_lane[i] = lane % 16 * 128 + (((2 * i + lane / 16) ^ lane % 8) << 4);
      v_lane[i] = (lane / 16 * 8 + lane % 8) * 128 + (((2 * i + lane / 8 % 2) ^ lane % 8) << 4);
    }

    std::uint32_t q[Dim / 16][2];
    bool joins = false;
    int t = warp, slot = warp;
    std::uint32_t parity = 0;
    read_q(q, cur, t);
    for (;;) {  // a head
      const int until = min(end, cur.end());
      Cursor coming = cur;
      std::uint32_t q_coming[Dim / 16][2];
      if (until < end) {
        move_on(shares, coming, share.shared);
        read_q(q_coming, coming, t + max(0, until - t + Warps - 1) / Warps * Warps);
      }
      float o[Dim / 16][4] = {};
      float m[2] = {kLeast, kLeast}, l[2] = {0.0f, 0.0f};
      const int shift = cur.length - cur.queries;
      // Tiles in between need no mask.
      const int clear_low = p.left >= 0 ? max(0, cur.length - 1 - p.left) : 0;
      const int clear_high = p.right >= 0 ? min(cur.length, shift + p.right + 1) : cur.length;
      for (; t < until; t += Warps) {
        const int first_key = cur.key_of(t);
        const std::uint32_t full = barriers + slot * 24;
        const std::uint32_t k_slot = ring + slot * 2 * kTileBytes, v_slot = k_slot + kTileBytes;
        wait_for_bytes(full, parity);
        float x[kBlocks][4] = {};
#pragma unroll
        for (int k = 0; k < Dim / 16; ++k) {
#pragma unroll
          for (int j = 0; j < kBlocks; ++j) {
            std::uint32_t a[4];
            load_matrices(a, k_slot + k / 4 * Keys * 128 + j * 2048 + k_lane[k % 4]);
            Half<T>::multiply(x[j], a, q[k][0], q[k][1]);
          }
        }
        scale_scores(x, to_log2, to_cap);
        if (first_key < clear_low || first_key + Keys > clear_high) {
          hide_scores(x, p, lane % 4 * 2, shift, 0, cur.length, first_key, lane);
        }
        std::uint32_t weights[kBlocks][2];
        weigh<T>(x, o, m, l, weights);

        wait_for_bytes(full + 8, parity);
        const auto add_values = [&](auto is_last) {
#pragma unroll
          for (int j = 0; j < kBlocks; ++j) {
            std::uint32_t there[2];  // what is behind the last value may be anything, and weighs nothing
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int left = cur.length - (first_key + j * 16 + i * 8 + lane % 4 * 2);
              there[i] = left > 1 ? ~0u : left > 0 ? 0xffffu : 0u;
            }
#pragma unroll
            for (int d = 0; d < Dim / 16; ++d) {
              std::uint32_t a[4];
              load_matrices_turned(a, v_slot + d / 4 * Keys * 128 + j * 2048 + v_lane[d % 4]);
              if constexpr (decltype(is_last)::value) {
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] &= there[i / 2];
              }
              Half<T>::multiply(o[d], a, weights[j][0], weights[j][1]);
            }
          }
        };
        if (first_key + Keys > cur.length) {
          add_values(std::true_type{});
        } else {
          add_values(std::false_type{});
        }
        // An arrival overtakes loads of matrices that wait for others' stores: without this the next tile was written over what
        // they had yet to read (benchmarks/fa4.md).
        __threadfence_block();
        __syncwarp();
        if (lane == 0) arrive(full + 16);
        slot += Warps;
        if (slot >= kSlots) slot -= kSlots, parity ^= 1;
      }
      const bool begins = cur.own > 0 || cur.begin >= shares.own * shares.tiles, ends = cur.end() <= end;
      finish(shares, cur, o, m, l, sums, largest, weight, items, begins, ends, warp, lane);
      if (ends && shares.tag == 0 && threadIdx.x == 0) {
        shares.joints[cur.b * p.heads_k + cur.head] = make_int4(begins ? block : share.from, block, cur.q_first, cur.queries);
      }
      joins = joins || (ends && !begins);
      if (until == end) break;
      cur = coming;
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) q[k][0] = q_coming[k][0], q[k][1] = q_coming[k][1];
    }
    if (shares.tag == 0) return;
    if (threadIdx.x == 0 && cur.end() > end) tell(shares.flags + block, shares.tag);
    if (joins) join(shares, share.shared, items, share.from, lane);
  }

  // Where sums are: rows are turned, so that eight of them are in all banks.
  static __device__ int in_sums(int row, int column) { return row * Dim + (column ^ ((row & 6) << 2)); }

  // Of a block's heads only the first may have begun in another, and only the last may end in another.
  static __device__ int slot_of(int block, bool begins) { return 2 * block + begins; }

  static __device__ void finish(const Shares &shares, const Cursor &cur, float (&o)[Dim / 16][4], float (&m)[2],
                                float (&l)[2], float *sums, float *largest, float *weight, const Item (&items)[kItems],
                                bool begins, bool ends, int warp, int lane) {
    const Decoding &p = shares.p;
    put_statistics(largest + warp * kRows, weight + warp * kRows, m, l, lane);
    float *const mine = sums + warp * kRows * Dim + lane % 4 * 2 * Dim + lane / 4;
#pragma unroll
    for (int d = 0; d < Dim / 16; ++d) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // as in_sums has it
        float *const at = mine + d / 2 * 32 + ((d % 2 * 16 + i * 8) ^ (lane % 4 * 8));
        at[0] = o[d][2 * i], at[Dim] = o[d][2 * i + 1];
      }
    }
    meet<kThreads>();
    // A lane has a row of every fourth warp.
    float top = kLeast, total = 0.0f, down[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) top = fmaxf(top, down[g] = largest[g * 32 + lane]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total += weight[g * 32 + lane] * (down[g] = exp2_of(down[g] - top));
    total += __shfl_xor_sync(~0u, total, 8);
    total += __shfl_xor_sync(~0u, total, 16);
    const float factor_of_row = reciprocal(total), lse_of_row = Rows::log_sum(top, total);
    const int slot = slot_of(blockIdx.x, begins), rows = cur.queries * p.group;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item &item = items[i];
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < Warps; ++w) {
        const float by = __shfl_sync(~0u, down[w / 4], w % 4 * 8 + item.row);
        const float4 one = *reinterpret_cast<const float4 *>(sums + w * kRows * Dim + in_sums(item.row, item.column));
        sum.x += by * one.x, sum.y += by * one.y, sum.z += by * one.z, sum.w += by * one.w;
      }
      const float factor = __shfl_sync(~0u, factor_of_row, item.row), lse = __shfl_sync(~0u, lse_of_row, item.row);
      if (item.row >= rows || item.column >= p.head_dim) continue;
      if (begins && ends) {
        deliver(p, item, cur.b, cur.head, cur.q_first, sum, factor, lse);
      } else {
        const int at = slot * shares.rows + item.row;
        *reinterpret_cast<float4 *>(p.o_parts + at * p.head_dim + item.column) =
            make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
        if (item.column == 0) p.lse_parts[at] = lse;
      }
    }
    meet<kThreads>();  // the sums are those of the next head then
  }

  // Joins the parts of a head that this block ends, whose first is in block `first`.
  static __device__ void join(const Shares &shares, const Cursor &c, const Item (&items)[kItems], int first, int lane) {
    const Decoding &p = shares.p;
    const int parts = blockIdx.x - first + 1, rows = c.queries * p.group;
    for (int i = threadIdx.x; i + 1 < parts; i += kThreads) {
      await(shares.flags + first + i, shares.tag);
      shares.flags[first + i] = 0;  // another call may have the same tag, of the same graph
    }
    meet<kThreads>();
    constexpr int kAtOnce = 4;  // a lane has a row of one of them
    float top = kLeast, total = 0.0f;
    float4 sum[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (int from = 0; from < parts; from += kAtOnce) {
      const auto row_at = [&](int j, int row) {
        return slot_of(first + from + j, from + j == 0) * shares.rows + row;
      };
      float4 one[kItems][kAtOnce];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const bool inside = items[i].row < rows && items[i].column < p.head_dim;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          one[i][j] = inside && from + j < parts
                          ? __ldcg(reinterpret_cast<const float4 *>(p.o_parts + row_at(j, items[i].row) * p.head_dim +
                                                                    items[i].column))
                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
      }
      const int part = lane / 8, row = lane % 8;
      float lse = kLeast;
      if (from + part < parts && row < rows) {
        const float read = __ldcg(p.lse_parts + row_at(part, row));
        if (read < -kLeast) lse = read * kLog2E;
      }
      float most = fmaxf(lse, top);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 8));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
      const float down = exp2_of(top - most), w = lse > kLeast ? exp2_of(lse - most) : 0.0f;
      float added = w + __shfl_xor_sync(~0u, w, 8);
      added += __shfl_xor_sync(~0u, added, 16);
      top = most, total = total * down + added;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const float of_row = __shfl_sync(~0u, down, items[i].row);
        sum[i].x *= of_row, sum[i].y *= of_row, sum[i].z *= of_row, sum[i].w *= of_row;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const float by = __shfl_sync(~0u, w, j * 8 + items[i].row);
          sum[i].x += by * one[i][j].x, sum[i].y += by * one[i][j].y;
          sum[i].z += by * one[i][j].z, sum[i].w += by * one[i][j].w;
        }
      }
    }
    const float factor_of_row = reciprocal(total), lse_of_row = Rows::log_sum(top, total);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const float factor = __shfl_sync(~0u, factor_of_row, items[i].row), lse = __shfl_sync(~0u, lse_of_row, items[i].row);
      if (items[i].row >= rows || items[i].column >= p.head_dim) continue;
      deliver(p, items[i], c.b, c.head, c.q_first, sum[i], factor, lse);
    }
  }
};

// A block for each key head of each sequence, and row.
template <typename T, int Dim>
__device__ void join_shares(const Shares &shares) {
  using Kernel = ShareKernel<T, Dim, false>;
  using Rows = typename Kernel::Rows;
  const Decoding &p = shares.p;
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int row = blockIdx.y, b = blockIdx.x / p.heads_k, head = blockIdx.x % p.heads_k;
  const int4 joint = shares.joints[blockIdx.x];
  const int first = joint.x, parts = joint.y - joint.x + 1, q_first = joint.z, queries = joint.w;
  if (parts == 1 || row >= queries * p.group) return;
  join_parts<Dim, kMostShares>(
      p, parts, [&](int i) { return std::int64_t{Kernel::slot_of(first + i, i == 0)} * shares.rows + row; },
      [&](int column, const float4 &sum, float factor, float lse) {
        const typename Rows::Sequence sequence{q_first, 0, 0, queries, 0, 0, 0};
        const typename Rows::Row of_all = Rows::row_of(p, row, head);
        write_four(static_cast<T *>(p.o.data) + Rows::place_of(p, p.o, sequence, b, of_all) + column, sum, factor);
        if (column == 0) p.lse[Rows::place_of_lse(p, sequence, b, of_all)] = lse;
      });
}

#endif
#endif  // __CUDACC__

// clang, which compiles the host side, needs their names and parameters only; other GPUs than Hopper and newer ones
// never run them.
template <typename T, int Dim, bool WholeHeads>
__global__ void __launch_bounds__(ShareShape<Dim>::kAllThreads) share_kernel(const __grid_constant__ Shares shares) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  ShareKernel<T, Dim, WholeHeads>::run(shares);
#endif
}

template <typename T, int Dim>
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ Shares shares) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  join_shares<T, Dim>(shares);
#endif
}

}  // namespace flashdepot::fa4
