// The host side of a CUDA source for clang alone, without nvcc and without clang's own CUDA
// headers: included before the source, it gives clang NVIDIA's declarations in a form that it
// reads.
//
// clang compiles for the CPU only here, so device code is parsed and never emitted. What it does
// emit is what nvcc's host pass would: a function for each kernel that launches it, the fatbin, and
// its registration. (-x cuda -fcuda-include-gpubinary X.fatbin)
#pragma once

// Without __CUDACC__ NVIDIA's headers leave these words to whoever defines them first. Only kernels
// and their bounds mean something to the host.
#define __global__ __attribute__((global))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __host__
#define __device__
#define __shared__
#define __grid_constant__

// Standard headers come before force_cuda_host_device below, which is not meant for them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cfloat>
#include <cinttypes>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <ratio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What <<<>>> becomes. clang looks these up by name.
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                                void *stream);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, std::size_t *shared,
                                                  void *stream);

// Kernels print.
extern "C" __attribute__((device)) int printf(const char *format, ...);

// cuda_runtime.h has the overload for kernels only under nvcc.
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

// From here on every function is one for both sides: one that no host code calls is then not held
// to what the CPU can do (PTX in it), and not emitted.
#pragma clang force_cuda_host_device begin

// Names that device code uses outside of templates, or in them without an argument that would keep
// the look-up for later. None is ever called.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
template <typename T>
T __shfl_sync(unsigned, T, int, int = 32);
template <typename T>
T __shfl_up_sync(unsigned, T, unsigned, int = 32);
template <typename T>
T __shfl_down_sync(unsigned, T, unsigned, int = 32);
template <typename T>
T __shfl_xor_sync(unsigned, T, int, int = 32);
template <typename T>
T atomicAdd(T *, T);
float __int_as_float(int);
int __dp4a(int, int, int);
unsigned __byte_perm(unsigned, unsigned, unsigned);
__half2 __hfma2(__half2, __half2, __half2);
#ifdef _WIN32  // glibc has functions of its own by these names
float __expf(float);
float __logf(float);
#endif
