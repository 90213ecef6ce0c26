#include <flashdepot/cuda_failure.h>

namespace flashdepot::fa2 {
namespace {

thread_local CudaFailure first;

}  // namespace

bool succeeded(cudaError_t code, const char *call) {
  if (code != cudaSuccess && first.call == nullptr) {
    first = {code, call};
  }
  return code == cudaSuccess;
}

CudaFailure take_failure() {
  const CudaFailure failure = first;
  first = {};
  return failure;
}

}  // namespace flashdepot::fa2
