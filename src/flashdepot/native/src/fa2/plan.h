// Whether this library has what a call needs of flash-attention, and what to get where it has not.
#pragma once

#include "fa2/unit_problem.h"
#include "fa2/units.h"
#include "family.h"

namespace flashdepot::fa2 {

// A problem and the units of this library that solve it.
struct ForwardPlan {
  UnitProblem problem;
  std::int32_t unit_dim;
  ForwardLaunch forward;
  ForwardLaunch splitkv;  // nullptr if it is not in this library
};

struct BackwardPlan {
  UnitProblem problem;
  std::int32_t unit_dim;
  BackwardLaunch backward;
};

// Find the units. What is not in this library, what no unit of upstream does, and what the GPU, if
// there is one, cannot run, is the reason in *why.
Fit plan_forward(const ForwardCall &call, const DeviceFacts *gpu, ForwardPlan &plan, Text *why);
Fit plan_backward(const BackwardCall &call, const DeviceFacts *gpu, BackwardPlan &plan, Text *why);

}  // namespace flashdepot::fa2
