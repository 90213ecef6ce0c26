// The passes of flash-attention as a family of kernels.
#pragma once

#include "family.h"

namespace flashdepot::fa2 {

extern const Family family;

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why);
Inside inside(const ForwardCall &call, const DeviceFacts &gpu);
fa_status workspace(const ForwardCall &call, Workspace &needs);
fa_status launch(const ForwardCall &call, const DeviceFacts &gpu);

Fit fits(const BackwardCall &call, const DeviceFacts *gpu, Text *why);
Inside inside(const BackwardCall &call, const DeviceFacts &gpu);
fa_status workspace(const BackwardCall &call, Workspace &needs);
fa_status launch(const BackwardCall &call, const DeviceFacts &gpu);

}  // namespace flashdepot::fa2
