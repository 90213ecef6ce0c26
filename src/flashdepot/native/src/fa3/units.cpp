#include "fa3/units.h"

#include <iterator>

#include "error.h"
#include "fa3/passes.h"
#include "fa_config.h"

// The kernels' element types are named, never used: their headers would cost seconds a file.
namespace cutlass {
struct float_e4m3_t;
struct bfloat16_t;
}  // namespace cutlass

namespace flashdepot::fa3 {
namespace {

struct Dtype_e4m3 {
  using element = cutlass::float_e4m3_t;
  [[maybe_unused]] static constexpr std::int32_t code = FA_DTYPE_E4M3;
};
struct Dtype_bf16 {
  using element = cutlass::bfloat16_t;
  [[maybe_unused]] static constexpr std::int32_t code = FA_DTYPE_BF16;
};

#define UNIT(dtype, dim, dim_v, split, paged) \
  {(split) ? FA_PASS_SPLITKV : FA_PASS_FWD, Dtype_##dtype::code, dim, 0},
#define KEY(dtype, dim, dim_v, split, paged) {Dtype_##dtype::code, dim, dim_v, split, paged},
// Upstream packs the query heads of a key head into a tile wherever it splits keys or reads pages by
// row, and has it as other units elsewhere (hopper/setup.py).
#define LAUNCH(dtype, dim, dim_v, split, paged) \
  run_mha_fwd_<90, Dtype_##dtype::element, dim, dim_v, split, paged, false, (split) || (paged)>,

constexpr fa_unit kUnits[] = {FA3_CONFIG_UNITS(UNIT)};
constexpr Key kKeys[] = {FA3_CONFIG_UNITS(KEY)};
// Entry i runs kUnits[i]. Only what the configuration lists is referred to, so a subset links.
constexpr Launch kLaunches[] = {FA3_CONFIG_UNITS(LAUNCH)};

constexpr std::int32_t kSass[] = {90};
constexpr std::int32_t kHeadDims[] = {64, 128, 256};

constexpr std::uint32_t kFeatures = (FA3_CONFIG_HAS_LOCAL ? FA_FEATURE_LOCAL : 0) |
                                    (FA3_CONFIG_HAS_UNEVEN_K ? FA_FEATURE_UNEVEN_K : 0);

// The launches after kernels that wait for them by themselves.
template <int kColumns>
[[maybe_unused]] void combine(Params &params, cudaStream_t stream) {
  run_mha_fwd_combine_<cutlass::bfloat16_t, float, kColumns>(params, stream, true);
}

Fit fits_backward(const BackwardCall &, const DeviceFacts *, Text *why) {
  return decline(why, Fit::unsupported, "it has no backward kernels");
}

Inside inside_backward(const BackwardCall &, const DeviceFacts &) { return {false, false}; }

fa_status refuse_backward() {
  return refuse(FA_STATUS_INTERNAL,
                "fa3 was given a backward pass, which it has none of; please report this");
}
fa_status backward_workspace(const BackwardCall &, Workspace &) { return refuse_backward(); }
fa_status launch_backward(const BackwardCall &, const DeviceFacts &) { return refuse_backward(); }

}  // namespace

Launch find_unit(const Key &key) {
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    const Key &has = kKeys[i];
    if (has.dtype == key.dtype && has.head_dim == key.head_dim && has.head_dim_v == key.head_dim_v &&
        has.split == key.split && has.paged == key.paged) {
      return kLaunches[i];
    }
  }
  return nullptr;
}

Launch find_combine([[maybe_unused]] std::int32_t head_dim_v) {
#if FA3_CONFIG_HAS_COMBINE
  return head_dim_v <= 64 ? combine<64> : combine<128>;
#else
  return nullptr;
#endif
}

bool has_feature(std::uint32_t feature) { return (kFeatures & feature) != 0; }

extern const Family family = {
    {
        FA_FAMILY_FA3,
        kFeatures,
        "fa3",
        FA3_CONFIG_UPSTREAM,
        kSass,
        kHeadDims,
        kUnits,
        static_cast<std::int32_t>(std::size(kSass)),
        static_cast<std::int32_t>(std::size(kHeadDims)),
        static_cast<std::int32_t>(std::size(kUnits)),
        static_cast<std::int32_t>(sizeof(fa_unit)),
    },
    {fits, inside, workspace, launch},
    {fits_backward, inside_backward, backward_workspace, launch_backward},
    true,
};

}  // namespace flashdepot::fa3
