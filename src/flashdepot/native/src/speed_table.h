// A user's own measurements of which family is faster, instead of those that the library was made with.
//
// FLASH_ATTENTION_TABLE names a file in the format of kernels/fa4/speed.csv, which `flashdepot bench
// --tune` writes. It is read once in a process, when the first call is to get the best family.
#pragma once

#include <flash_attention.h>

#include <cstdint>

#include "problem.h"

namespace flashdepot {

// What a row of the table is about.
struct Point {
  std::int32_t arch;  // 10 * major + minor
  std::int32_t pass;  // FA_PASS_FWD or FA_PASS_BWD
  std::int32_t head_dim;  // of the kernel
  std::int32_t mask;  // 0: full, 1: causal, 2: local
  std::int32_t kind;  // as Kind has them
  std::int32_t group;  // query heads a key head
  std::int32_t keys;
};

enum class Faster { unknown, fa4, fa2 };

// Reads the table, if there is one. Refuses where it cannot be read or a line of it is not a measurement.
[[nodiscard]] fa_status read_speed_table();

// Which family was faster, by the row whose group and then whose number of keys is the nearest by ratio.
// Unknown without a table, and where it says nothing of the pass, head dim, mask and kind.
Faster faster_by_table(const Point &point);

// Whether the table has any row of a GPU's architecture.
bool is_in_table(std::int32_t arch);

}  // namespace flashdepot
