// An error of the CUDA runtime inside upstream's launchers, which return nothing.
#pragma once

#include <cuda_runtime_api.h>

namespace flashdepot::fa2 {

// Whether the code is cudaSuccess. Keeps the first of this thread that is not, with the call that
// answered it, until take_failure.
bool succeeded(cudaError_t code, const char *call);

// `call` is a literal, and nullptr when there was no failure.
struct CudaFailure {
  cudaError_t code;
  const char *call;
};
CudaFailure take_failure();

}  // namespace flashdepot::fa2
