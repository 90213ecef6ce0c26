// Which arguments go together: what a kind of call needs, and what it cannot have.
#pragma once

#include <flash_attention.h>

#include "problem.h"

namespace flashdepot {

// Refuse arguments that are set and need others, or contradict them. Look at whether they are set.
[[nodiscard]] fa_status check_combination(const fa_fwd_args &args);
[[nodiscard]] fa_status check_combination(const fa_bwd_args &args);

// Refuse what no family of this version serves.
[[nodiscard]] fa_status check_served(const fa_fwd_args &args, const Problem &problem);
[[nodiscard]] fa_status check_served(const fa_bwd_args &args, const Problem &problem);

// Refuses values that depend on others, once every number is in its range.
[[nodiscard]] fa_status check_values(const fa_fwd_args &args, const Problem &problem);

}  // namespace flashdepot
