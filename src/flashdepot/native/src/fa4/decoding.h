// Calls with few queries for each key head, which the kernels of decode.h run.
#pragma once

#include "family.h"

namespace flashdepot::fa4 {

// Whether they can run a call on a GPU; without one, on any that the library has code for.
bool can_decode(const ForwardCall &call, const DeviceFacts *gpu);

// Whether the call has so few queries that they are the fastest, if they can run it.
bool has_few_queries(const Problem &problem);

Workspace decoding_workspace(const ForwardCall &call, const DeviceFacts &gpu);
[[nodiscard]] fa_status decode(const ForwardCall &call, const DeviceFacts &gpu);

}  // namespace flashdepot::fa4
