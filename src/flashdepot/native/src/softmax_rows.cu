#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "error.h"
#include "own_kernel.cuh"
#include "softmax_rows.h"

namespace flashdepot {

union Elements {
  uint4 bits;
  __half half[kChunk];
  __nv_bfloat16 bfloat[kChunk];
};

__device__ inline void scale_chunk(uint4 *at, std::int32_t dtype, float factor) {
  Elements chunk;
  chunk.bits = *at;
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    if (dtype == FA_DTYPE_FP16) {
      chunk.half[e] = __float2half_rn(__half2float(chunk.half[e]) * factor);
    } else {
      chunk.bfloat[e] = __float2bfloat16_rn(__bfloat162float(chunk.bfloat[e]) * factor);
    }
  }
  *at = chunk.bits;
}

// A group of threads for each row, in the order of lse: all of them read it before one writes it.
__global__ void __launch_bounds__(kThreads) finish_rows_kernel(const SoftmaxRows r) {
  constexpr unsigned kGroup = 8;
  const auto rows = static_cast<unsigned>(r.rows);
  const auto heads = static_cast<unsigned>(r.heads);
  const auto count = static_cast<unsigned>(r.batch) * heads * rows;  // less than 2^31
  const unsigned step = gridDim.x * (kThreads / kGroup);
  const unsigned lane = threadIdx.x % kGroup;
  const unsigned mask = 0xffu << (threadIdx.x % 32 / kGroup * kGroup);
  for (unsigned i = blockIdx.x * (kThreads / kGroup) + threadIdx.x / kGroup; i < count; i += step) {
    const unsigned vector = i / rows;  // (batch, heads)
    const unsigned row = i - vector * rows;
    const unsigned batch = vector / heads;
    const unsigned head = vector - batch * heads;
    const auto signed_row = static_cast<std::int32_t>(row);
    if (r.cu_seqlens != nullptr &&
        (signed_row < r.cu_seqlens[0] || signed_row >= r.cu_seqlens[r.sequences])) {
      continue;
    }
    const float before = r.lse[i];
    const bool empty = is_infinite(before);
    float after = empty ? r.empty : before;
    if (r.sink != nullptr) {
      const float sink = r.sink[head];
      after = empty ? sink : fmaxf(before, sink) + log1pf(expf(-fabsf(before - sink)));
      if (!empty) {
        const float factor = expf(before - after);
        auto *o = static_cast<std::uint16_t *>(r.o.data) + batch * r.o.batch_stride +
                  row * r.o.row_stride + head * r.o.head_stride;
        for (unsigned chunk = lane; chunk < static_cast<unsigned>(r.head_dim) / kChunk;
             chunk += kGroup) {
          scale_chunk(reinterpret_cast<uint4 *>(o + chunk * kChunk), r.dtype, factor);
        }
      }
    }
    __syncwarp(mask);
    if (lane == 0) {
      r.lse[i] = after;
    }
  }
}

fa_status launch_finish_rows(const SoftmaxRows &rows, cudaStream_t stream) {
  const std::int64_t count = rows.batch * rows.rows * rows.heads;
  finish_rows_kernel<<<blocks_for(count * 8), kThreads, 0, stream>>>(rows);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

// A row of a sequence, and where lse and softmax_d have it.
struct Place {
  bool there;
  std::int64_t of_lse, of_sum;
};

__device__ inline Place place_of(const SoftmaxSums &s, std::int64_t batch, std::int64_t head,
                                 std::int64_t row) {
  if (s.cu_seqlens == nullptr) {
    const std::int64_t vector = batch * s.heads + head;
    return {true, vector * s.rows + row, vector * s.columns + row};
  }
  const std::int64_t first = s.cu_seqlens[batch];
  const std::int64_t start = (first + batch * s.tile) / s.step * s.step;
  return {first + row < s.cu_seqlens[batch + 1], head * s.total + first + row,
          head * s.columns + start + row};
}

__global__ void __launch_bounds__(kThreads) subtract_d_lse_kernel(const SoftmaxSums s) {
  const std::int64_t count = std::int64_t{s.batch} * s.heads * s.rows;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / s.rows;  // (batch, heads)
    const std::int64_t batch = vector / s.heads;
    const Place place = place_of(s, batch, vector - batch * s.heads, i - vector * s.rows);
    if (place.there && !is_infinite(s.lse[place.of_lse])) {
      s.softmax_d[place.of_sum] -= s.keep * s.d_lse[place.of_lse];
    }
  }
}

fa_status launch_subtract_d_lse(const SoftmaxSums &sums, cudaStream_t stream) {
  const std::int64_t count = std::int64_t{sums.batch} * sums.heads * sums.rows;
  subtract_d_lse_kernel<<<blocks_for(count), kThreads, 0, stream>>>(sums);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

constexpr int kSinkThreads = 1024;

// A block for each head.
__global__ void __launch_bounds__(kSinkThreads)
    d_sink_kernel(const SoftmaxSums s, const float *sinks, float *d_sink) {
  __shared__ float sums[kSinkThreads];
  const std::int64_t head = blockIdx.x;
  const float sink = sinks[head];
  float sum = 0.0f;
  for (std::int32_t batch = 0; batch < s.batch; ++batch) {
    for (std::int32_t row = static_cast<std::int32_t>(threadIdx.x); row < s.rows;
         row += kSinkThreads) {
      const Place place = place_of(s, batch, head, row);
      if (place.there && !is_infinite(s.lse[place.of_lse])) {
        sum += expf(sink - s.lse[place.of_lse]) * s.softmax_d[place.of_sum];
      }
    }
  }
  sums[threadIdx.x] = sum;
  for (int half = kSinkThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    d_sink[head] = -sums[0] / s.keep;
  }
}

fa_status launch_d_sink(const SoftmaxSums &sums, const float *sink, float *d_sink,
                        cudaStream_t stream) {
  d_sink_kernel<<<static_cast<unsigned>(sums.heads), kSinkThreads, 0, stream>>>(sums, sink, d_sink);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

__global__ void __launch_bounds__(kThreads)
    positive_infinity_kernel(float *to, const float *from, const std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    to[i] = is_infinite(from[i]) ? __int_as_float(0x7f800000) : from[i];
  }
}

fa_status launch_positive_infinity(float *to, const float *from, std::int64_t count,
                                   cudaStream_t stream) {
  positive_infinity_kernel<<<blocks_for(count), kThreads, 0, stream>>>(to, from, count);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
