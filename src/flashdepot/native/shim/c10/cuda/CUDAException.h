// Stand-in for the torch header of this name, which the unmodified kernels include.
//
// Torch's version throws c10::Error. This one throws CudaFailure, which never leaves the library:
// every entry point that can reach a launch catches it and answers FA_CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>  // fprintf and exit, which hardware_info.h uses without including them
#include <cstdlib>

namespace flashdepot {

// Plain data, so that throwing it needs nothing of the standard library. `call` is a literal.
struct CudaFailure {
  cudaError_t code;
  const char *call;
};

inline void throw_unless_success(cudaError_t code, const char *call) {
  if (code != cudaSuccess) {
    throw CudaFailure{code, call};
  }
}

}  // namespace flashdepot

#define C10_CUDA_CHECK(expression) ::flashdepot::throw_unless_success((expression), #expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() \
  ::flashdepot::throw_unless_success(cudaGetLastError(), "kernel launch")
