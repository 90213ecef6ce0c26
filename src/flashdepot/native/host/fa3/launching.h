// What FlashAttention-3's launchers call in place of what ends the program or needs a C++ library.
// They return nothing, so what went wrong is kept for who called them.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace flashdepot::fa3 {

// Whether the code is cudaSuccess. Keeps the first of this thread that is not, with the call that
// answered it, until take_failure.
bool succeeded(cudaError_t code, const char *call);

// cudaGetLastError after a launch, of which a failure is kept too: CUTLASS's own launcher asks, and
// its answer is lost.
cudaError_t launch_error();

// cuTensorMapEncodeTiled of the driver, of which a failure is kept too.
CUresult encode_tensor_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                           void *address, const cuuint64_t *extents, const cuuint64_t *strides,
                           const cuuint32_t *box, const cuuint32_t *steps,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

// `call` is a literal, and nullptr when there was no failure.
struct Failure {
  cudaError_t code;
  const char *call;
};
Failure take_failure();

}  // namespace flashdepot::fa3
