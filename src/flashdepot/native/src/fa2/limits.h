// What no kernel of flash-attention does, whatever was compiled.
#pragma once

#include "fa2/unit_problem.h"
#include "family.h"

namespace flashdepot::fa2 {

Fit fits_limits(const ForwardCall &call, const UnitProblem &problem, Text *why);
Fit fits_limits(const BackwardCall &call, Text *why);

// Of calls whose keys are copied together first (gathered.h).
Fit fits_gathering(const ForwardCall &call, Text *why);

// Refuses a row stride over which `kernels` ("split-KV", "backward") would step too far at once:
// they step over a block of rows, 256 at most, in 32 bits. The stride of one row is not looked at.
[[nodiscard]] fa_status check_row_stride(const char *tensor, std::int64_t stride, std::int64_t rows,
                                         const char *kernels);

}  // namespace flashdepot::fa2
