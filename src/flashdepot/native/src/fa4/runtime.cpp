// The functions that objects of CuTe DSL call, by the names under which NVIDIA's run time library
// has them (read from the calls in the objects), over this library's own.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "driver/driver_api.h"

#if defined(_WIN32)
#define FLASHDEPOT_HIDDEN
#else
#define FLASHDEPOT_HIDDEN __attribute__((visibility("hidden")))
#endif

extern "C" {

FLASHDEPOT_HIDDEN std::int32_t _cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                                    cudaJitOption *jit_options, void **jit_values,
                                                    std::int32_t jit_count,
                                                    cudaLibraryOption *options, void **values,
                                                    std::int32_t count) {
  return cudaLibraryLoadData(library, code, jit_options, jit_values,
                             static_cast<unsigned>(jit_count), options, values,
                             static_cast<unsigned>(count));
}

FLASHDEPOT_HIDDEN std::int32_t _cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                                     const char *name) {
  return cudaLibraryGetKernel(kernel, library, name);
}

FLASHDEPOT_HIDDEN std::int32_t _cudaGetDevice(int *device) { return cudaGetDevice(device); }

FLASHDEPOT_HIDDEN std::int32_t _cudaDeviceGetAttribute(int *value, std::int32_t attribute,
                                                       std::int32_t device) {
  return cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device);
}

FLASHDEPOT_HIDDEN std::int32_t _cudaFuncSetAttribute(const void *function, std::int32_t attribute,
                                                     std::int32_t value) {
  return cudaFuncSetAttribute(function, static_cast<cudaFuncAttribute>(attribute), value);
}

FLASHDEPOT_HIDDEN std::int32_t _cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                                std::int32_t attribute,
                                                                std::int32_t value,
                                                                std::int32_t device) {
  return cudaKernelSetAttributeForDevice(kernel, static_cast<cudaFuncAttribute>(attribute), value,
                                         device);
}

FLASHDEPOT_HIDDEN std::int32_t _cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                                   const void *function, void **arguments) {
  return cudaLaunchKernelExC(config, function, arguments);
}

// CUDA's runtime has no such function of its own.
FLASHDEPOT_HIDDEN std::int32_t _cuKernelGetAttribute(int *value, std::int32_t attribute,
                                                     CUkernel kernel, std::int32_t ordinal) {
  cudaError_t code;
  const flashdepot::driver::DriverApi *api = flashdepot::driver::driver_api(&code);
  if (api == nullptr) {
    return code;
  }
  CUdevice device;
  if (const CUresult result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS) {
    return static_cast<std::int32_t>(result);
  }
  return static_cast<std::int32_t>(api->cuKernelGetAttribute(
      value, static_cast<CUfunction_attribute>(attribute), kernel, device));
}

}  // extern "C"
