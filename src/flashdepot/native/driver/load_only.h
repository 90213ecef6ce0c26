// Loading kernels without running them.
#pragma once

namespace flashdepot::driver {

// While it is on, what this thread launches is loaded into the current context and not run, and
// memory is neither copied nor set.
void load_only(bool on);

// Whether it is.
bool loads_only();

}  // namespace flashdepot::driver
