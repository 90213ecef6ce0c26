// The functions of NVIDIA's driver that the library stands on, found when the first call needs
// them: a program that links the library starts without a driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

// Every one of them is in each driver from 525 (CUDA 12.0) on.
#define FLASHDEPOT_DRIVER_FUNCTIONS(X) \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetAttribute)              \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuCtxGetCurrent)                   \
  X(cuCtxSetCurrent)                   \
  X(cuCtxGetDevice)                    \
  X(cuCtxSynchronize)                  \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuLibraryLoadData)                 \
  X(cuLibraryUnload)                   \
  X(cuLibraryGetKernel)                \
  X(cuKernelGetAttribute)              \
  X(cuKernelGetFunction)               \
  X(cuKernelSetAttribute)              \
  X(cuFuncGetAttribute)                \
  X(cuLaunchKernel)                    \
  X(cuLaunchKernelEx)                  \
  X(cuMemAllocAsync)                   \
  X(cuMemFreeAsync)                    \
  X(cuMemcpyAsync)                     \
  X(cuMemsetD8Async)                   \
  X(cuTensorMapEncodeTiled)

namespace flashdepot::driver {

// An address that is called like the function. std::atomic itself has two conversions to it, and
// clang takes neither for better.
template <typename Function>
class Entry {
 public:
  operator Function() const { return address_.load(std::memory_order_relaxed); }
  void set(Function address) { address_.store(address, std::memory_order_relaxed); }

 private:
  std::atomic<Function> address_{nullptr};
};

// Called like the functions themselves: api.cuInit(0). Several threads may fill it at once, each
// with the same addresses, so it takes no lock, and a fork at any time leaves none behind.
struct DriverApi {
#define FLASHDEPOT_MEMBER(name) Entry<decltype(&::name)> name;
  FLASHDEPOT_DRIVER_FUNCTIONS(FLASHDEPOT_MEMBER)
#undef FLASHDEPOT_MEMBER
};

// The driver's functions, once the driver is there, new enough and initialized; else nullptr, and
// why in *code. A failure is not remembered: the next call tries again.
const DriverApi *driver_api(cudaError_t *code);

// The error of the runtime that a result of the driver stands for. Since CUDA 10.1 the two share
// their numbers.
inline cudaError_t as_error(CUresult result) { return static_cast<cudaError_t>(result); }

}  // namespace flashdepot::driver
