// Which context a thread works in.
#pragma once

#include "driver_api.h"

namespace flashdepot::driver {

// Gives the calling thread a context, if it has none: the primary one of its device.
cudaError_t require_context(const DriverApi &api);

// The ordinal of the calling thread's device: its context's, or without one that of the last
// set_device, 0 at first.
cudaError_t current_device(const DriverApi &api, int *ordinal);

// Makes the primary context of a device the thread's own. Setting the device back gives the thread
// back the very context that it had, which may be no primary one, or none.
cudaError_t set_device(const DriverApi &api, int ordinal);

}  // namespace flashdepot::driver
