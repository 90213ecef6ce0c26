// Which arguments go together: what a kind of call needs, what it cannot have, and what no kernel
// of upstream does.
#pragma once

#include <flash_attention.h>

#include "problem.h"

namespace flashdepot {

// Arguments that are set and need others, or contradict them. Looks at whether they are set.
void check_combination(const fa_fwd_args &args);
void check_combination(const fa_bwd_args &args);

// Values that depend on others, once every number is in its range.
void check_values(const fa_fwd_args &args, const Problem &problem);
void check_values(const Problem &problem);

// A number of splits that the problem cannot be cut into.
void check_splits(const fa_fwd_args &args, const Problem &problem);

}  // namespace flashdepot
