// Maps of keys and values, which the driver makes.
#include "driver/driver_api.h"
#include "driver/load_only.h"
#include "fa4/shares.h"

namespace flashdepot::fa4 {
namespace {

// Rows in shape (batch, rows, heads, head_dim).
struct Extents {
  std::int64_t batch, rows, heads, head_dim;
};

// Of 64 columns each, so that a box of all of them is a tile as the kernels have it; of fewer at the end of a row there is
// a box for each 64, in which the driver fills what is missing with zeros.
bool map_rows(CUtensorMap &map, const Place &place, const Extents &extents, const Shares &shares, std::int32_t dtype) {
  cudaError_t code;
  const driver::DriverApi *api = driver::driver_api(&code);
  constexpr std::int64_t kMost = std::int64_t{1} << 39;  // elements of a stride (CUDA driver API)
  constexpr std::int64_t kColumns = 64;
  bool fits = api != nullptr;
  const auto stride = [&](std::int64_t count, std::int64_t elements) {
    // A stride over one thing means nothing, and is one that the driver takes.
    const std::int64_t taken = count > 1 ? elements : extents.head_dim;
    fits = fits && taken > 0 && taken < kMost;
    return static_cast<cuuint64_t>(taken * 2);
  };
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const bool at_once = extents.head_dim % kColumns == 0;
  const cuuint64_t strides[] = {stride(extents.rows, place.row), size(kColumns * 2), stride(extents.heads, place.head),
                                stride(extents.batch, place.batch)};
  const cuuint64_t sizes[] = {size(at_once ? kColumns : extents.head_dim), size(extents.rows),
                              size(at_once ? extents.head_dim / kColumns : 1), size(extents.heads), size(extents.batch)};
  const auto columns = static_cast<cuuint32_t>(at_once ? share_tile(shares.p.head_dim).dim / kColumns : 1);
  const cuuint32_t box[] = {kColumns, static_cast<cuuint32_t>(shares.box), columns, 1, 1}, steps[] = {1, 1, 1, 1, 1};
  return fits && api->cuTensorMapEncodeTiled(
                     &map, dtype == FA_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                     5, place.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool map_keys(Shares &s, std::int32_t dtype, std::int64_t total_k) {
  const Decoding &p = s.p;
  constexpr std::int64_t kAny = std::int64_t{1} << 31;  // pages, or sequences of a cache, which nobody counts
  const ShareTile tile = share_tile(p.head_dim);
  const bool paged = p.block_table != nullptr;
  s.columns = p.head_dim % 64 == 0 ? 1 : tile.dim / 64;
  s.box = paged && p.page_size % tile.keys != 0 ? kFewestBoxed : tile.keys;
  const Extents extents = paged                          ? Extents{kAny, p.page_size, p.heads_k, p.head_dim}
                          : p.cu_seqlens_q != nullptr    ? Extents{1, total_k, p.heads_k, p.head_dim}
                          : p.batch_index != nullptr     ? Extents{kAny, p.seqlen_k, p.heads_k, p.head_dim}
                                                         : Extents{p.batch, p.seqlen_k, p.heads_k, p.head_dim};
  return driver::loads_only() ||
         (map_rows(s.k, p.k, extents, s, dtype) && map_rows(s.v, p.v, extents, s, dtype));
}

}  // namespace flashdepot::fa4
