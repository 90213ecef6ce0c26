// The forward pass of family fa3 (family.h), and that it has no backward pass.
#pragma once

#include "family.h"

namespace flashdepot::fa3 {

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why);
Inside inside(const ForwardCall &call, const DeviceFacts &gpu);
fa_status workspace(const ForwardCall &call, Workspace &needs);
fa_status launch(const ForwardCall &call, const DeviceFacts &gpu);

}  // namespace flashdepot::fa3
