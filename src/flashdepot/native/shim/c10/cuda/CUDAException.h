// Stand-in for the torch header of this name, which the unmodified kernels include.
//
// Torch's version throws c10::Error. This one keeps the error and leaves the launcher, which
// returns nothing; the library asks for the error afterwards and answers FA_STATUS_CUDA.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdepot/cuda_failure.h>

#define FLASHDEPOT_LEAVE_UNLESS_SUCCEEDED(code, call)  \
  do {                                                 \
    if (!::flashdepot::fa2::succeeded((code), call)) { \
      return;                                          \
    }                                                  \
  } while (false)

#define C10_CUDA_CHECK(expression) FLASHDEPOT_LEAVE_UNLESS_SUCCEEDED(expression, #expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() \
  FLASHDEPOT_LEAVE_UNLESS_SUCCEEDED(cudaGetLastError(), "kernel launch")

// Upstream's functions that ask for facts of the device print an error and end the program.
// Included here, before the launchers do, they keep the error and answer -1, which is no device,
// and no number of blocks that could be launched.
#if __has_include(<hardware_info.h>)
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace flashdepot::fa2 {

struct Unknown {
  operator int() const { return -1; }
  operator std::tuple<int, int>() const { return {-1, -1}; }
};

}  // namespace flashdepot::fa2

#define fprintf(...) static_cast<void>(0)
#define exit(...)                                                           \
  do {                                                                      \
    ::flashdepot::fa2::succeeded(status_, "a query of the current device"); \
    return ::flashdepot::fa2::Unknown();                                    \
  } while (false)
#include <hardware_info.h>
#undef exit
#undef fprintf
#endif
