// What the kernels of our own have in common: a thread for each 128 bits of a tensor.
//
// They are in no anonymous namespace: nvcc would name them by the file's path, and then the host
// side, where clang compiles it, could not find them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "zeros.h"

#ifndef __CUDACC__
// Names that clang meets where it only parses device code (host/host_view.h).
unsigned __float_as_uint(float);
void __syncwarp(unsigned);
#endif

namespace flashdepot {

#ifndef __CUDACC__
float expf(float);
float logf(float);
float log1pf(float);
float fabsf(float);
float fmaxf(float, float);
#endif

// By its bits: comparisons may be compiled as if there were no infinity.
__device__ inline bool is_infinite(float value) {
  return (__float_as_uint(value) & 0x7fffffffu) == 0x7f800000u;
}

constexpr int kThreads = 256;
constexpr int kChunk = 8;  // elements in 128 bits

// Blocks for that many threads; each thread strides over what is left.
inline unsigned blocks_for(std::int64_t threads) {
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__host__ __device__ inline std::int64_t chunks_of(const Gradient &gradient) {
  return gradient.batch * gradient.rows * gradient.heads * (gradient.head_dim / kChunk);
}

// Where chunk i of a gradient is, in the order of a contiguous one.
__device__ inline uint4 *chunk_at(const Gradient &gradient, std::int64_t i) {
  const int chunks_per_vector = gradient.head_dim / kChunk;
  const std::int64_t vector = i / chunks_per_vector;  // (batch, rows, heads)
  const std::int64_t chunk = i - vector * chunks_per_vector;
  const std::int64_t row = vector / gradient.heads;  // (batch, rows)
  const std::int64_t head = vector - row * gradient.heads;
  const std::int64_t batch = row / gradient.rows;
  auto *data = static_cast<std::uint16_t *>(gradient.tensor.data) +
               batch * gradient.tensor.batch_stride +
               (row - batch * gradient.rows) * gradient.tensor.row_stride +
               head * gradient.tensor.head_stride + chunk * kChunk;
  return reinterpret_cast<uint4 *>(data);
}

}  // namespace flashdepot
