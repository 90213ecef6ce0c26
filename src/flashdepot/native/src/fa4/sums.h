// Whether the dk and dv of several query heads that share a key head are summed in memory or in a block's registers.
#pragma once

#include "device.h"
#include "fa4/units.h"
#include "problem.h"

namespace flashdepot::fa4 {

// Whether a kernel with these tiles, whose blocks go through the rows of all query heads of a key head, ends before one
// with a block for each query head, which adds each one's dk and dv to sums.
bool ends_sooner(const Problem &problem, const DeviceFacts *gpu, Tiles tiles);

}  // namespace flashdepot::fa4
