// The caller's buffers: checked before anything is launched over them.
#pragma once

#include <flash_attention.h>

#include "problem.h"

namespace flashdepot {

// Refuse what is wrong with pointers, strides and alignment.
void check_buffers(const fa_fwd_args &args, const Problem &problem);
void check_buffers(const fa_bwd_args &args, const Problem &problem);

// Refuses a row stride over which `kernels` ("split-KV", "backward") would step too far at once:
// they step over a block of rows, 256 at most, in 32 bits. The stride of one row is not looked at.
void check_row_stride(const char *tensor, std::int64_t stride, std::int64_t rows,
                      const char *kernels);

// Refuses a workspace that is too small. `query` is the function that says how large it must be.
void check_workspace(std::uint64_t has, std::uint64_t needs, const char *query);

}  // namespace flashdepot
