// Whether this library has what a problem needs, and what to get where it has not.
#pragma once

#include "problem.h"
#include "units.h"

namespace flashdepot {

// A problem and the units of this library that solve it.
struct ForwardPlan {
  Problem problem;
  std::int32_t unit_dim;
  ForwardLaunch forward;
  ForwardLaunch splitkv;  // nullptr if it is not in this library
};

struct BackwardPlan {
  Problem problem;
  std::int32_t unit_dim;
  BackwardLaunch backward;
};

// Refuse what is not in this library.
ForwardPlan plan_forward(const Problem &problem, std::int32_t num_splits);
BackwardPlan plan_backward(const Problem &problem);

}  // namespace flashdepot
