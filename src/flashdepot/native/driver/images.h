// The fatbins of this library and the kernels in them, as compilers register them before main.
#pragma once

#include "driver_api.h"

namespace flashdepot::driver {

struct Image;

// A fatbin in the wrapper that compilers put around it (fatbinary_section.h). Registering it again
// gives the same image. nullptr without memory; its kernels are then not found.
Image *register_image(const void *wrapper);

// A kernel of an image, by the host function that stands for it. The first image that brings a
// function has it: compilers put one function into every unit that needs it.
void register_kernel(Image *image, const void *stub, const char *name);

// Takes back one registration. Without any left, the image leaves the driver.
void unregister_image(Image *image);

// The kernel that a host function stands for, loaded into the driver the first time. What no
// image brought is cudaErrorInvalidDeviceFunction.
cudaError_t find_kernel(const DriverApi &api, const void *stub, CUkernel *kernel);

}  // namespace flashdepot::driver
