// FlashAttention-4's kernels in this library: what each can do, and how it is loaded and launched.
#pragma once

#include <flash_attention.h>

#include <cstdint>

#include "device.h"
#include "fa4/arguments.h"
#include "family.h"

namespace flashdepot::fa4 {

enum class Kernel : std::int32_t {
  fwd,
  bwd,
  whole,  // what bwd does with those below, of sequences whose keys are one tile
  pre,  // before bwd: softmax_d, lse in base 2, zeros where dq is summed
  dq,   // after it: the sum of dq to dq
  dkv,  // after it: the sum of dk or dv to dk or dv
};

enum class Mask : std::int32_t { full, causal, local };

// How q, k and v lie, and which lists of lengths a kernel takes.
enum class Layout : std::int32_t {
  dense,
  packed,        // cu_seqlens_q and cu_seqlens_k
  used,          // dense, and the number of keys of each sequence
  paged,         // pages of k and v, and the number of keys of each sequence
  paged_packed,  // the same with cu_seqlens_q
};

// What is wanted of a unit.
struct Key {
  Kernel kernel;
  std::int32_t dtype;
  std::int32_t head_dim;
  std::int32_t head_dim_v;  // of a unit: the largest; fwd units may have less than head_dim
  Layout layout;
  Mask mask;            // of passes: fwd, bwd and whole
  bool softcap;         // of fwd and bwd
  bool several_heads;   // of bwd: a block for each of several query heads that share a key head; of fwd: one for all
  std::int32_t tile;    // of pre and dq: bwd's query rows; of dkv: its keys; of whole: at least so many keys
  std::int32_t length;  // of fwd: of the sequences
  std::int64_t rows;    // of fwd and bwd: of a sequence, of packed ones the mean; 0: any tiles will do
  std::int32_t group = 1;  // of fwd and bwd: query heads that share a key head
  std::int64_t heads = 0;  // of fwd: query heads of all sequences; 0: any tiles will do
  std::int64_t keys = 0;   // of fwd: of a sequence, of packed ones the mean
};

struct Unit;

// The unit for a GPU; without one, for any GPU. nullptr if the library has none.
const Unit *find_unit(const DeviceFacts *gpu, const Key &key);

// Whether any unit runs on the GPU.
bool has_units_for(const DeviceFacts &gpu);

// The smallest head dim of fa4's kernels that holds this one; it is at most 256.
std::int32_t unit_head_dim(std::int32_t head_dim);

// Query rows and keys that a unit works on at a time.
struct Tiles {
  std::int32_t m, n;
};
Tiles tiles_of(const Unit &unit);

// How many blocks of the unit an SM has, which go from tile to tile and are told how many there are; 0: a block
// for each tile.
std::int32_t blocks_of(const Unit &unit);

// Whether a forward unit takes a sink, and either pass another head dim of v than of q and k.
bool has_todays_words(const Unit &unit);

// Whether a block of a backward unit goes through the rows of all query heads of its keys.
bool takes_groups(const Unit &unit);

// Whether a backward unit writes zeros, where no query sees a key, up to its own head dim: past that of
// a tensor with a smaller one.
bool zeros_whole_rows(const Unit &unit);

// "fwd_d128_bf16_dense_causal"
const char *name_of(const Unit &unit);

// Loads the unit for a GPU unless that is done. False if the driver does not take its code, which
// the driver is asked once.
bool load(const Unit &unit, const DeviceFacts &gpu);

// Launches a loaded unit on the current device.
[[nodiscard]] fa_status launch(const Unit &unit, Arguments &arguments);

}  // namespace flashdepot::fa4
