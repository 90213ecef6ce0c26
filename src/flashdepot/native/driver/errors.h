// The words for an error of CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace flashdepot::driver {

// "cudaErrorNoDevice"; for a code that is not known here "unrecognized error code".
const char *error_name(cudaError_t code);

// "no CUDA-capable device is detected"; the same for a code that is not known here.
const char *error_text(cudaError_t code);

}  // namespace flashdepot::driver
