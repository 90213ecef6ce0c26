#include "fa4/decode.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "fa4/decode.cuh"

namespace flashdepot::fa4 {
namespace {

template <typename T, typename Shape>
fa_status launch_shape(const Decoding &p, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void *>(&decode_kernel<T, Shape>);
  const int tiles = (p.seqlen_q * p.group + Shape::kRows - 1) / Shape::kRows;
  const dim3 grid(static_cast<unsigned>(p.parts), static_cast<unsigned>(p.heads_k * tiles),
                  static_cast<unsigned>(p.batch));
  FLASHDEPOT_TRY(launch_early(kernel, "launch of a decoding kernel", p, grid, Shape::kThreads, Shape::kShared, stream,
                              p.in_cluster ? static_cast<unsigned>(p.parts) : 1));
  if (p.parts == 1 || p.in_cluster) {
    return FA_STATUS_OK;
  }
  const std::int64_t queries = p.cu_seqlens_q != nullptr ? p.total_q : std::int64_t{p.batch} * p.seqlen_q;
  return launch_early(reinterpret_cast<const void *>(&combine_decoded_kernel<T, Shape::kDim>),
                      "launch of the kernel that combines parts", p, dim3(static_cast<unsigned>(queries * p.heads_k * p.group)),
                      kJoinThreads, 0, stream);
}

template <int Dim>
constexpr int kKeys = Dim == 64 ? 32 : 16;

// Of a row of tiles, the smallest that holds all rows, or the largest that there is.
template <typename T, int Dim>
fa_status launch_dim(const Decoding &p, cudaStream_t stream) {
  const int rows = p.seqlen_q * p.group;
  if (rows <= 8 && p.block == Block::warp) {
    return launch_shape<T, DecodeShape<Dim, 1, 1, kKeys<Dim>, 1>>(p, stream);
  }
  if (rows <= 8 && p.block == Block::small) {
    return launch_shape<T, DecodeShape<Dim, 1, 4, kKeys<Dim>, 1>>(p, stream);
  }
  if (rows <= 8) {
    return launch_shape<T, DecodeShape<Dim, 1, 4, kKeys<Dim>, 3>>(p, stream);
  }
  if constexpr (most_rows(Dim) > 16) {
    if (rows > 16) {
      return launch_shape<T, DecodeShape<Dim, 4, 4, kKeys<Dim>, 3>>(p, stream);
    }
  }
  return launch_shape<T, DecodeShape<Dim, 2, 4, kKeys<Dim>, 3>>(p, stream);
}

template <typename T>
fa_status launch_dtype(const Decoding &p, cudaStream_t stream) {
  return p.head_dim <= 64    ? launch_dim<T, 64>(p, stream)
         : p.head_dim <= 128 ? launch_dim<T, 128>(p, stream)
                             : launch_dim<T, 256>(p, stream);
}

}  // namespace

fa_status launch_decoding(const Decoding &decoding, std::int32_t dtype, cudaStream_t stream) {
  return dtype == FA_DTYPE_BF16 ? launch_dtype<__nv_bfloat16>(decoding, stream)
                                : launch_dtype<__half>(decoding, stream);
}

}  // namespace flashdepot::fa4
