#include "fa4/shares.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "fa4/shares.cuh"

namespace flashdepot::fa4 {
namespace {

template <typename T, int Dim>
const void *kernel_for(const Shares &s) {
  if constexpr (Dim <= 128) {
    if (s.own > 0 && s.each + s.rest == 0) {
      return reinterpret_cast<const void *>(&share_kernel<T, Dim, true>);
    }
  }
  return reinterpret_cast<const void *>(&share_kernel<T, Dim, false>);
}

template <typename T, int Dim>
fa_status launch_dim(const Shares &s, cudaStream_t stream) {
  using Shape = ShareShape<Dim>;
  const void *const kernel = kernel_for<T, Dim>(s);
  FLASHDEPOT_TRY(launch_early(kernel, "launch of a decoding kernel", s, dim3(static_cast<unsigned>(s.blocks)),
                              Shape::kAllThreads, Shape::kShared, stream));
  if (s.tag != 0 || (s.tiles != 0 && s.rest == 0 && s.each % s.tiles == 0)) {
    return FA_STATUS_OK;  // blocks join, or each has whole heads
  }
  const auto join = reinterpret_cast<const void *>(&join_kernel<T, Dim>);
  return launch_early(join, "launch of the kernel that joins shares", s,
                      dim3(static_cast<unsigned>(s.p.batch * s.p.heads_k), static_cast<unsigned>(s.rows)), kJoinThreads,
                      0, stream);
}

template <typename T>
fa_status launch_dtype(const Shares &s, cudaStream_t stream) {
  return s.p.head_dim <= 64    ? launch_dim<T, 64>(s, stream)
         : s.p.head_dim <= 128 ? launch_dim<T, 128>(s, stream)
                               : launch_dim<T, 256>(s, stream);
}

}  // namespace

fa_status launch_shares(const Shares &shares, std::int32_t dtype, cudaStream_t stream) {
  return dtype == FA_DTYPE_BF16 ? launch_dtype<__nv_bfloat16>(shares, stream) : launch_dtype<__half>(shares, stream);
}

}  // namespace flashdepot::fa4
