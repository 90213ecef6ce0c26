// What clang includes before a unit of FlashAttention-3, after host_view.h: names that it meets
// where it only parses device code, and what the launchers of upstream and CUTLASS are given in place
// of what ends the program or prints. Upstream's headers are here so that they are compiled
// once for all units.
#pragma once

#include <cuda.h>

#include "launching.h"

// cutlass/cuda_host_adapter.hpp then calls the driver's functions by their names, and this is the
// one that is called.
#define CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL
#define cuTensorMapEncodeTiled ::flashdepot::fa3::encode_tensor_map
#define cudaGetLastError ::flashdepot::fa3::launch_error

int __viaddmin_s32(int, int, int);
void __syncwarp(unsigned = 0xffffffffu);
void __threadfence();
template <typename T>
T atomicCAS(T *, T, T);
int min(int, int);
int max(int, int);
// Templates: functions of these names are the host's, and no others may have their arguments.
template <typename T>
T ceilf(T);
template <typename T>
int4 make_int4(T, T, T, T);

// The kernels' one argument, of which cuda_runtime.h takes a list under nvcc only.
template <typename Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters),
                               Parameters parameters) {
  void *arguments[] = {&parameters};
  return ::cudaLaunchKernelExC(config, reinterpret_cast<const void *>(kernel), arguments);
}

// Where CUTLASS prints why a tensor map cannot be, which encode_tensor_map keeps.
namespace flashdepot::fa3 {

struct Silent {};
template <typename T>
const Silent &operator<<(const Silent &silent, const T &) {
  return silent;
}
inline const Silent &operator<<(const Silent &silent, std::ostream &(*)(std::ostream &)) {
  return silent;
}

}  // namespace flashdepot::fa3

namespace std {
inline constexpr ::flashdepot::fa3::Silent flashdepot_silent;
}
#define cerr flashdepot_silent

// nvcc names kernels the same whether or not they are static. clang does not, and only what is not has
// nvcc's names.
#include "cutlass/detail/helper_macros.hpp"
#undef CUTLASS_GLOBAL
#define CUTLASS_GLOBAL __global__

#include "cuda_check.h"
#undef CHECK_CUDA
#define CHECK_CUDA(call)                                \
  do {                                                  \
    if (!::flashdepot::fa3::succeeded((call), #call)) { \
      return;                                           \
    }                                                   \
  } while (false)

// Below, CUTLASS makes tensor maps and launches ahead of the kernel before only for an nvcc that it
// knows to be new enough. Products of its older kernels want a header for nvcc then.
#include "cutlass/arch/wmma.h"
#define __CUDACC_VER_MAJOR__ (CUDART_VERSION / 1000)
#define __CUDACC_VER_MINOR__ (CUDART_VERSION % 1000 / 10)

#if __has_include("flash_fwd_launch_template.h")
#include "flash_fwd_launch_template.h"
#endif
