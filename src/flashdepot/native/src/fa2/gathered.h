// Keys and values that upstream's kernels cannot read where they lie, copied to the workspace: of pages
// that are no whole number of their tiles, and of caches where q and k have another head dim than v.
#pragma once

#include "family.h"
#include "wide.h"

namespace flashdepot::fa2 {

// Where the copies are in the workspace, which they begin.
struct Gathered {
  Wide q, k, v, o;             // q and o only where they are narrower than the kernels' head dim
  std::uint64_t starts;        // packed: where each sequence begins, (batch + 1) numbers,
  std::uint64_t lengths;       // and how many keys it has, (batch)
  std::uint64_t bytes;
};

// Whether keys are copied together for a call.
bool gathers(const ForwardCall &call);

Gathered gathered_of(const ForwardCall &call);

// The call over the copies; `workspace` may be nullptr where nothing is launched.
ForwardCall over_gathered(const ForwardCall &call, const Gathered &gathered, void *workspace);

// Enqueue the copies to the workspace before the launch of that call, and of o after it.
[[nodiscard]] fa_status gather(const ForwardCall &call, const Gathered &gathered);
[[nodiscard]] fa_status deliver(const ForwardCall &call, const Gathered &gathered);

}  // namespace flashdepot::fa2
