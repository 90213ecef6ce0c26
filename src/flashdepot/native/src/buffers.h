// The caller's buffers: checked before anything is launched over them.
#pragma once

#include <flash_attention.h>

#include "problem.h"

namespace flashdepot {

// Refuse what is wrong with pointers, strides and alignment.
[[nodiscard]] fa_status check_buffers(const fa_fwd_args &args, const Problem &problem);
[[nodiscard]] fa_status check_buffers(const fa_bwd_args &args, const Problem &problem);

// Refuses a workspace that is too small. `query` is the function that says how large it must be.
[[nodiscard]] fa_status check_workspace(std::uint64_t has, std::uint64_t needs, const char *query);

}  // namespace flashdepot
