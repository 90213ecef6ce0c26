// What both passes make of a problem.
#pragma once

#include "fa4/units.h"
#include "problem.h"

namespace flashdepot::fa4 {

inline Mask mask_of(const Problem &problem) {
  const Windows &windows = problem.windows;
  if (windows.unbounded()) {
    return Mask::full;
  }
  return windows.left < 0 && windows.right == 0 ? Mask::causal : Mask::local;
}

// Whether query heads share a key head.
inline bool several_heads(const Problem &problem) { return problem.heads_q != problem.heads_k; }

// The ends of a window for the kernels for local masks, which have both: one that reaches every key
// stands for none, and a larger one would not fit beside a row's number in 32 bits.
inline Windows local_ends(const Problem &problem) {
  const std::int32_t everything = problem.seqlen_q + problem.seqlen_k;
  const auto end = [&](std::int32_t asked) {
    return asked < 0 || asked > everything ? everything : asked;
  };
  return {end(problem.windows.left), end(problem.windows.right)};
}

// What no kernel of fa4 does in either pass, or nullptr.
inline const char *common_obstacle(const Problem &problem) {
  return problem.dropout() ? "dropout" : problem.alibi ? "alibi_slopes" : nullptr;
}

// Why no unit was found.
inline Fit decline_unit(Text *why, const DeviceFacts *gpu, const Problem &problem, const char *pass) {
  if (gpu != nullptr && !has_units_for(*gpu)) {
    return decline(why, Fit::no_kernel_for_arch, "no kernel for compute capability %d.%d",
                   gpu->major, gpu->minor);
  }
  return decline(why, Fit::unsupported,
                 "the %s kernel for this head dim (%d), dtype, mask and layout is not in this library",
                 pass, unit_head_dim(problem.head_dim));
}

inline Fit decline_load(Text *why, const Unit &unit) {
  return decline(why, Fit::no_kernel_for_arch,
                 "the driver does not take the code of %s; a newer driver may", name_of(unit));
}

}  // namespace flashdepot::fa4
