// Stand-in for the torch header of this name, from which flash.h takes at::PhiloxCudaState.
//
// The type is a member of the parameter block that kernels receive by value. Ours is private to
// this library: torch changed the width of offset_intragraph_ in place, under the same mangled
// name, and so moved every later member of that block. The inline namespace gives ours a mangled
// name of its own, should both end up in one program.
#pragma once

#include <cuda_runtime_api.h>  // cudaStream_t, which flash.h uses without including it

#include <cstdint>

namespace at {
inline namespace flashdepot_shim {

// Seed and offset of the Philox generator: values, or device pointers when the launch is being
// captured in a CUDA graph and every replay has to draw fresh numbers.
struct PhiloxCudaState {
  union Word {
    std::uint64_t value;
    const std::int64_t *pointer;
  };

  Word seed{0};
  Word offset{0};
  std::uint64_t offset_intragraph = 0;  // added to *offset.pointer
  bool captured = false;                // the words are pointers
};

}  // namespace flashdepot_shim
}  // namespace at
