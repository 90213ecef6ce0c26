// What upstream's launchers call instead of functions that end the program or need a C++ library.
#include "host/fa3/launching.h"

#include "driver_api.h"
#include "load_only.h"

namespace flashdepot::fa3 {
namespace {

thread_local Failure first;

}  // namespace

bool succeeded(cudaError_t code, const char *call) {
  if (code != cudaSuccess && first.call == nullptr) {
    first = {code, call};
  }
  return code == cudaSuccess;
}

cudaError_t launch_error() {
  const cudaError_t code = cudaGetLastError();
  succeeded(code, "kernel launch");
  return code;
}

CUresult encode_tensor_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                           void *address, const cuuint64_t *extents, const cuuint64_t *strides,
                           const cuuint32_t *box, const cuuint32_t *steps,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (driver::loads_only()) {
    return CUDA_SUCCESS;
  }
  cudaError_t code;
  const driver::DriverApi *api = driver::driver_api(&code);
  const CUresult result =
      api == nullptr ? static_cast<CUresult>(code)
                     : api->cuTensorMapEncodeTiled(map, type, rank, address, extents, strides, box,
                                                   steps, interleave, swizzle, promotion, fill);
  succeeded(driver::as_error(result), "cuTensorMapEncodeTiled");
  return result;
}

Failure take_failure() {
  const Failure failure = first;
  first = {};
  return failure;
}

}  // namespace flashdepot::fa3
