#include "fa4/decode.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "error.h"
#include "fa4/decode.cuh"

namespace flashdepot::fa4 {
namespace {

// Its blocks begin when those of the kernel before have told or ended, and wait for what they have written.
// cluster: blocks of one, of x.
fa_status launch(const void *kernel, const char *name, const Decoding &decoding, dim3 grid, int threads, int shared,
                 unsigned cluster, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  void *arguments[] = {const_cast<Decoding *>(&decoding)};
  return check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), name);
}

template <typename T>
fa_status launch_combination(const Decoding &p, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void *>(&combine_decoded_kernel<T>);
  const std::int64_t queries =
      p.cu_seqlens_q != nullptr ? p.total_q : std::int64_t{p.batch} * p.seqlen_q;
  return launch(kernel, "launch of the kernel that combines parts", p,
                dim3(static_cast<unsigned>(queries * p.heads_k * p.group)), kCombineThreads, 0, 1, stream);
}

template <typename T, typename Shape>
fa_status launch_shape(const Decoding &p, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void *>(&decode_kernel<T, Shape>);
  FLASHDEPOT_TRY(check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kShared),
      "cudaFuncSetAttribute"));
  const int tiles = (p.seqlen_q * p.group + Shape::kRows - 1) / Shape::kRows;
  const dim3 grid(static_cast<unsigned>(p.parts), static_cast<unsigned>(p.heads_k * tiles),
                  static_cast<unsigned>(p.batch));
  FLASHDEPOT_TRY(launch(kernel, "launch of a decoding kernel", p, grid, Shape::kThreads, Shape::kShared,
                        p.in_cluster ? static_cast<unsigned>(p.parts) : 1, stream));
  return p.parts == 1 || p.in_cluster ? FA_STATUS_OK : launch_combination<T>(p, stream);
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
