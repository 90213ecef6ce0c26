// Where another family is the better choice.
#pragma once

#include "device.h"
#include "problem.h"

namespace flashdepot::fa4 {

// Why another family should run the call on this GPU if it can, or nullptr.
const char *drawback(const ForwardCall &call, const DeviceFacts &gpu);
const char *drawback_of_decoding(const Problem &problem, const DeviceFacts &gpu);
const char *drawback(const BackwardCall &call, const DeviceFacts &gpu);

}  // namespace flashdepot::fa4
