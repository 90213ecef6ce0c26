#include "contexts.h"

namespace flashdepot::driver {
namespace {

constexpr int kMostDevices = 64;

// Retained once and for the process, as the runtime does.
std::atomic<CUcontext> primaries[kMostDevices];

// What set_device took from this thread.
struct Displaced {
  bool any;
  CUcontext context;           // nullptr: the thread had none
  int ordinal;                 // of its device
  int device_without_context;  // as it was
  CUcontext successor;         // what the thread got for it
};

thread_local int device_without_context;
thread_local Displaced displaced;

cudaError_t find_device(const DriverApi &api, int ordinal, CUdevice *device) {
  if (ordinal < 0 || ordinal >= kMostDevices) {
    return cudaErrorInvalidDevice;
  }
  return as_error(api.cuDeviceGet(device, ordinal));
}

cudaError_t retain_primary(const DriverApi &api, int ordinal, CUcontext *context) {
  CUdevice device;
  if (const cudaError_t code = find_device(api, ordinal, &device); code != cudaSuccess) {
    return code;
  }
  const CUresult result = api.cuDevicePrimaryCtxRetain(context, device);
  if (result == CUDA_SUCCESS) {
    primaries[ordinal].store(*context, std::memory_order_release);
  }
  return as_error(result);
}

// Makes the primary context of a device current. One that somebody has reset since is retained
// anew.
cudaError_t enter_primary(const DriverApi &api, int ordinal, CUcontext *context) {
  if (ordinal < 0 || ordinal >= kMostDevices) {
    return cudaErrorInvalidDevice;
  }
  *context = primaries[ordinal].load(std::memory_order_acquire);
  if (*context != nullptr && api.cuCtxSetCurrent(*context) == CUDA_SUCCESS) {
    return cudaSuccess;
  }
  if (const cudaError_t code = retain_primary(api, ordinal, context); code != cudaSuccess) {
    return code;
  }
  return as_error(api.cuCtxSetCurrent(*context));
}

cudaError_t ordinal_of(const DriverApi &api, CUdevice device, int *ordinal) {
  int count = 0;
  if (const CUresult result = api.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  for (int i = 0; i < count; ++i) {
    CUdevice candidate;
    if (api.cuDeviceGet(&candidate, i) == CUDA_SUCCESS && candidate == device) {
      *ordinal = i;
      return cudaSuccess;
    }
  }
  return cudaErrorInvalidDevice;
}

}  // namespace

cudaError_t require_context(const DriverApi &api) {
  CUcontext context = nullptr;
  if (const CUresult result = api.cuCtxGetCurrent(&context); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  return context != nullptr ? cudaSuccess : enter_primary(api, device_without_context, &context);
}

cudaError_t current_device(const DriverApi &api, int *ordinal) {
  CUcontext context = nullptr;
  if (const CUresult result = api.cuCtxGetCurrent(&context); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  if (context == nullptr) {
    *ordinal = device_without_context;
    return cudaSuccess;
  }
  CUdevice device;
  if (const CUresult result = api.cuCtxGetDevice(&device); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  return ordinal_of(api, device, ordinal);
}

cudaError_t set_device(const DriverApi &api, int ordinal) {
  CUcontext context = nullptr;
  if (const CUresult result = api.cuCtxGetCurrent(&context); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  if (displaced.any && displaced.ordinal == ordinal && displaced.successor == context) {
    displaced.any = false;
    device_without_context = displaced.device_without_context;
    return as_error(api.cuCtxSetCurrent(displaced.context));
  }
  int previous = 0;
  if (const cudaError_t code = current_device(api, &previous); code != cudaSuccess) {
    return code;
  }
  CUcontext successor = nullptr;
  if (const cudaError_t code = enter_primary(api, ordinal, &successor); code != cudaSuccess) {
    return code;
  }
  displaced = {true, context, previous, device_without_context, successor};
  device_without_context = ordinal;
  return cudaSuccess;
}

}  // namespace flashdepot::driver
