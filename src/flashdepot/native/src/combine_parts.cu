#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "combine_parts.h"
#include "error.h"
#include "own_kernel.cuh"

namespace flashdepot {

__device__ inline float element(const void *data, std::int32_t dtype, std::int64_t i) {
  switch (dtype) {
    case FA_DTYPE_FP16:
      return __half2float(static_cast<const __half *>(data)[i]);
    case FA_DTYPE_BF16:
      return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    default:
      return static_cast<const float *>(data)[i];
  }
}

__device__ inline void put(void *data, std::int32_t dtype, std::int64_t i, float value) {
  switch (dtype) {
    case FA_DTYPE_FP16:
      static_cast<__half *>(data)[i] = __float2half_rn(value);
      break;
    case FA_DTYPE_BF16:
      static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(value);
      break;
    default:
      static_cast<float *>(data)[i] = value;
  }
}

// A thread for each column, so that a warp reads neighbours.
__global__ void __launch_bounds__(kThreads) combine_kernel(const Combination c) {
  const std::int64_t count = c.batch * c.rows * c.heads * c.head_dim;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t vector = i / c.head_dim;  // (batch, rows, heads)
    const std::int64_t column = i - vector * c.head_dim;
    const std::int64_t of_batch = vector / c.heads;
    const std::int64_t head = vector - of_batch * c.heads;
    const std::int64_t batch = of_batch / c.rows;
    const std::int64_t row = of_batch - batch * c.rows;
    const auto at = [&](const auto &tensor) {
      return batch * tensor.batch_stride + row * tensor.row_stride + head * tensor.head_stride;
    };
    const float *lse = static_cast<const float *>(c.lse_parts.data) + at(c.lse_parts);

    float largest = 0.0f;
    bool any = false;
    for (std::int32_t part = 0; part < c.parts; ++part) {
      const float value = lse[part * c.lse_parts_stride];
      if (!is_infinite(value)) {
        largest = any ? fmaxf(largest, value) : value;
        any = true;
      }
    }
    float sum = 0.0f;
    float o = 0.0f;
    for (std::int32_t part = 0; part < c.parts; ++part) {
      const float value = lse[part * c.lse_parts_stride];
      if (!is_infinite(value)) {
        const float weight = expf(value - largest);
        sum += weight;
        o += weight *
             element(c.o_parts.data, c.parts_dtype,
                     part * c.o_parts_stride + at(c.o_parts) + column);
      }
    }
    put(c.o.data, c.dtype, at(c.o) + column, any ? o / sum : 0.0f);
    if (c.lse != nullptr && column == 0) {
      c.lse[(batch * c.heads + head) * c.rows + row] = any ? largest + logf(sum) : c.empty;
    }
  }
}

fa_status launch_combine(const Combination &combination, cudaStream_t stream) {
  const std::int64_t count =
      combination.batch * combination.rows * combination.heads * combination.head_dim;
  combine_kernel<<<blocks_for(count), kThreads, 0, stream>>>(combination);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace flashdepot
