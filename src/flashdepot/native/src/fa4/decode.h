// Few queries over many keys: the kernels of our own that read each key and value once.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstdint>

namespace flashdepot::fa4 {

// Where the rows of a tensor are, in elements.
struct Place {
  void *data;
  std::int64_t batch, row, head;
};

// Of the kernels for up to 8 rows. Of small blocks more are on an SM at once, which helps where keys are few and heads many.
enum class Block : std::int32_t {
  usual,  // four warps, each with three tiles in shared memory
  small,  // four warps with one tile each
  warp    // one warp with one tile
};

// A pass over keys that are cut into parts. The query heads of a key head, and its queries, are rows
// of one tile: row r is query r / group of head r % group.
struct Decoding {
  Place q, k, v, o;
  float *lse;
  float *o_parts;    // (parts, rows of lse, head_dim); of parts that are combined by a kernel
  float *lse_parts;  // (parts, rows of lse)

  const std::int32_t *cu_seqlens_q, *cu_seqlens_k;  // nullptr: not packed
  const std::int32_t *used_k;                       // keys of each sequence; nullptr: all
  const std::int32_t *leftpad_k, *batch_index, *block_table;
  std::int64_t block_table_stride;

  Place k_new, v_new;  // rows that are put after the used ones
  std::int32_t seqlen_new;
  const void *rotary_cos, *rotary_sin;
  std::int32_t rotary_dim;
  bool rotary_interleaved, rotary_moves;

  std::int32_t batch, seqlen_q, seqlen_k, total_q;
  std::int32_t heads_k, group, head_dim, page_size;
  std::int32_t left, right;  // of the window; -1: no end
  float scale, softcap;      // softcap 0: none
  std::int32_t parts;
  Block block;
  bool in_cluster;  // the parts are blocks of one cluster, which combines them
};

constexpr std::int32_t kMostInCluster = 8;  // parts, of any GPU (CUDA C++ Programming Guide, thread block clusters)

constexpr std::int32_t kMostParts = 128;  // that a second kernel joins

// The widest tile of rows that there is a kernel for.
constexpr std::int32_t most_rows(std::int32_t head_dim) { return head_dim <= 128 ? 32 : 16; }

// dtype: FA_DTYPE_FP16 or FA_DTYPE_BF16.
[[nodiscard]] fa_status launch_decoding(const Decoding &decoding, std::int32_t dtype,
                                        cudaStream_t stream);

}  // namespace flashdepot::fa4
