// Into how many parts the keys of few queries are divided.
#pragma once

#include "family.h"

namespace flashdepot::fa4 {

struct Parts {
  std::int32_t count;
  bool in_cluster;  // they are joined in shared memory, and not by a second kernel
};

[[nodiscard]] Parts parts_of(const ForwardCall &call, const DeviceFacts &gpu);

// Whether the kernels for many queries, a block of which takes all keys of a key head, are faster for one query.
[[nodiscard]] bool unit_is_faster(const Problem &problem, const DeviceFacts &gpu);

}  // namespace flashdepot::fa4
