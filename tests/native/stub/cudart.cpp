// A CUDA runtime without a GPU: the few functions that the C layer calls, over invented devices.
// The library under test is linked with --no-undefined, so a call of any other CUDA function
// (an allocation, a synchronization) does not link.
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "stub.h"

namespace flashdepot::driver {
// In place of the run time's: the stand-ins record no launch while it is on.
void load_only(bool on) { stub_load_only(on ? 1 : 0); }
}  // namespace flashdepot::driver

namespace {

struct Device {
  int major, minor, multiprocessors, shared_bytes;
};

// The same as DEVICES in stub_library.py.
constexpr Device kDevices[] = {{8, 0, 108, 166912},
                               {8, 9, 128, 101376},
                               {9, 0, 132, 232448},
                               {10, 0, 148, 232448},
                               {7, 5, 40, 65536},
                               {12, 1, 48, 101376}};
constexpr int kDeviceCount = sizeof kDevices / sizeof kDevices[0];

int current = 0;
cudaError_t last_error = cudaSuccess;
std::string failing_call;
cudaError_t failing_code = cudaSuccess;

cudaError_t outcome(const char *call, cudaError_t otherwise = cudaSuccess) {
  return failing_call == call ? failing_code : otherwise;
}

}  // namespace

extern "C" {

int stub_current_device() { return current; }

void stub_set_current_device(int device) { current = device; }

void stub_set_last_error(int code) { last_error = static_cast<cudaError_t>(code); }

// From now on `call` answers with `code`; code 0 fixes it.
void stub_fail(const char *call, int code) {
  failing_call = code == 0 ? "" : call;
  failing_code = static_cast<cudaError_t>(code);
}

cudaError_t cudaGetDevice(int *device) {
  *device = current;
  return outcome("cudaGetDevice");
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t code = outcome("cudaSetDevice");
  if (code == cudaSuccess) {
    current = device;
  }
  return code;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = kDeviceCount;
  return outcome("cudaGetDeviceCount");
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr name, int device) {
  if (device < 0 || device >= kDeviceCount) {
    return outcome("cudaDeviceGetAttribute", cudaErrorInvalidDevice);
  }
  *value = name == cudaDevAttrComputeCapabilityMajor   ? kDevices[device].major
           : name == cudaDevAttrComputeCapabilityMinor ? kDevices[device].minor
           : name == cudaDevAttrMultiProcessorCount    ? kDevices[device].multiprocessors
                                                       : kDevices[device].shared_bytes;
  return outcome("cudaDeviceGetAttribute");
}

cudaError_t cudaGetLastError() {
  const cudaError_t code = outcome("kernel launch", last_error);
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  stub_record_copy(to, from, bytes, kind, stream);
  return outcome("cudaMemcpyAsync");
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  stub_record_fill(to, value, bytes, stream);
  return outcome("cudaMemsetAsync");
}

const char *cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheStub"; }

const char *cudaGetErrorString(cudaError_t) { return "text of the stub"; }

}  // extern "C"
