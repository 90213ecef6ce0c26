// Stand-in for the torch header of this name: how a kernel reads seed and offset.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <tuple>

namespace at::cuda::philox {
inline namespace flashdepot_shim {

// {seed, offset}. On the host only states that hold values can be unpacked.
__host__ __device__ __forceinline__ std::tuple<std::uint64_t, std::uint64_t> unpack(
    const PhiloxCudaState &state) {
  if (state.captured) {
    return {static_cast<std::uint64_t>(*state.seed.pointer),
            static_cast<std::uint64_t>(*state.offset.pointer) + state.offset_intragraph};
  }
  return {state.seed.value, state.offset.value};
}

}  // namespace flashdepot_shim
}  // namespace at::cuda::philox
