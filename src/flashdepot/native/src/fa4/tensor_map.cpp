// Maps of keys and values, which the driver makes.
#include "driver/driver_api.h"
#include "driver/load_only.h"
#include "fa4/shares.h"

namespace flashdepot::fa4 {
namespace {

// Of rows in shape (batch, rows, heads, head_dim), of which boxes of 64 columns are copied.
struct Extents {
  std::int64_t batch, rows, heads, head_dim;
};

bool map_rows(CUtensorMap &map, const Place &place, const Extents &extents, std::int32_t dtype, std::int32_t box_rows) {
  cudaError_t code;
  const driver::DriverApi *api = driver::driver_api(&code);
  constexpr std::int64_t kMost = std::int64_t{1} << 39;  // elements of a stride (CUDA driver API)
  bool fits = api != nullptr;
  const auto stride = [&](std::int64_t count, std::int64_t elements) {
    // A stride over one thing means nothing, and is one that the driver takes.
    const std::int64_t taken = count > 1 ? elements : extents.head_dim;
    fits = fits && taken > 0 && taken < kMost;
    return static_cast<cuuint64_t>(taken * 2);
  };
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t strides[] = {stride(extents.rows, place.row), stride(extents.heads, place.head),
                                stride(extents.batch, place.batch)};
  const cuuint64_t sizes[] = {size(extents.head_dim), size(extents.rows), size(extents.heads), size(extents.batch)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
  return fits && api->cuTensorMapEncodeTiled(
                     &map, dtype == FA_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                     4, place.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool map_keys(Shares &s, std::int32_t dtype, std::int64_t total_k) {
  const Decoding &p = s.p;
  constexpr std::int64_t kAny = std::int64_t{1} << 31;  // pages, or sequences of a cache, which nobody counts
  const std::int32_t keys = share_tile(p.head_dim).keys;
  const bool paged = p.block_table != nullptr;
  s.box = paged && p.page_size % keys != 0 ? kFewestBoxed : keys;
  const Extents extents = paged                          ? Extents{kAny, p.page_size, p.heads_k, p.head_dim}
                          : p.cu_seqlens_q != nullptr    ? Extents{1, total_k, p.heads_k, p.head_dim}
                          : p.batch_index != nullptr     ? Extents{kAny, p.seqlen_k, p.heads_k, p.head_dim}
                                                         : Extents{p.batch, p.seqlen_k, p.heads_k, p.head_dim};
  return driver::loads_only() ||
         (map_rows(s.k, p.k, extents, dtype, s.box) && map_rows(s.v, p.v, extents, dtype, s.box));
}

}  // namespace flashdepot::fa4
