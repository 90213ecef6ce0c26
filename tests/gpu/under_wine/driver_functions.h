// The functions of the driver that nvcuda.dll hands on: those of the library, and those of managed_torch.py.
#pragma once

#define DRIVER_FUNCTIONS(X)            \
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
  X(cuMemAllocManaged)                 \
  X(cuMemcpyAsync)                     \
  X(cuMemsetD8Async)                   \
  X(cuTensorMapEncodeTiled)

#define DRIVER_NUMBER(name) NUMBER_OF_##name,
enum { DRIVER_FUNCTIONS(DRIVER_NUMBER) DRIVER_FUNCTION_COUNT };
#undef DRIVER_NUMBER

// One call. Integers and addresses only: each takes 8 bytes in both calling conventions, so that a
// function of fewer arguments does not look at the rest.
enum { DRIVER_ARGUMENTS = 12 };
struct driver_call {
  unsigned long long arguments[DRIVER_ARGUMENTS];
  int function;
  int result;
};
