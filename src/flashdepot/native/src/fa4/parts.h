// Into how many parts the keys of few queries are divided.
#pragma once

#include "family.h"

namespace flashdepot::fa4 {

struct Parts {
  std::int32_t count;
  bool in_cluster;  // they are joined in shared memory, and not by a second kernel
};

[[nodiscard]] Parts parts_of(const ForwardCall &call, const DeviceFacts &gpu);

// Whether a call of one query each may be run by the kernels for many, of which a block takes all keys of a key head,
// and those are faster.
[[nodiscard]] bool unit_is_faster(const Problem &problem, const DeviceFacts &gpu);

}  // namespace flashdepot::fa4
