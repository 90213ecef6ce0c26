#include "fa2/units.h"

#include <algorithm>
#include <iterator>

#include "fa2/passes.h"
#include "fa_config.h"

// The kernels' element types are named, never used: their headers would cost seconds a file.
namespace cutlass {
struct half_t;
struct bfloat16_t;
}  // namespace cutlass

namespace flashdepot::fa2 {
namespace {

struct Dtype_fp16 {
  using element = cutlass::half_t;
  [[maybe_unused]] static constexpr std::int32_t code = FA_DTYPE_FP16;
};
struct Dtype_bf16 {
  using element = cutlass::bfloat16_t;
  [[maybe_unused]] static constexpr std::int32_t code = FA_DTYPE_BF16;
};

#define FWD_KEY(dtype, head_dim, causal) {FA_PASS_FWD, Dtype_##dtype::code, head_dim, causal},
#define SPLITKV_KEY(dtype, head_dim, causal) {FA_PASS_SPLITKV, Dtype_##dtype::code, head_dim, causal},
#define BWD_KEY(dtype, head_dim, causal) {FA_PASS_BWD, Dtype_##dtype::code, head_dim, causal},

constexpr fa_unit kUnits[] = {FA2_CONFIG_FWD_UNITS(FWD_KEY)          //
                              FA2_CONFIG_SPLITKV_UNITS(SPLITKV_KEY)  //
                              FA2_CONFIG_BWD_UNITS(BWD_KEY)};

#define FWD_LAUNCH(dtype, head_dim, causal) \
  FLASH_NAMESPACE::run_mha_fwd_<Dtype_##dtype::element, head_dim, causal>,
#define SPLITKV_LAUNCH(dtype, head_dim, causal) \
  FLASH_NAMESPACE::run_mha_fwd_splitkv_dispatch<Dtype_##dtype::element, head_dim, causal>,
#define BWD_LAUNCH(dtype, head_dim, causal) \
  FLASH_NAMESPACE::run_mha_bwd_<Dtype_##dtype::element, head_dim, causal>,
#define NO_LAUNCH(dtype, head_dim, causal) nullptr,

// Entry i of the one that has it runs kUnits[i]. Only what the configuration lists is referred to,
// so a subset links.
constexpr ForwardLaunch kForward[] = {FA2_CONFIG_FWD_UNITS(FWD_LAUNCH)          //
                                      FA2_CONFIG_SPLITKV_UNITS(SPLITKV_LAUNCH)  //
                                      FA2_CONFIG_BWD_UNITS(NO_LAUNCH)};
constexpr BackwardLaunch kBackward[] = {FA2_CONFIG_FWD_UNITS(NO_LAUNCH)      //
                                        FA2_CONFIG_SPLITKV_UNITS(NO_LAUNCH)  //
                                        FA2_CONFIG_BWD_UNITS(BWD_LAUNCH)};

static_assert(std::size(kUnits) == std::size(kForward));
static_assert(std::size(kUnits) == std::size(kBackward));

constexpr std::int32_t kSass[] = {FA2_CONFIG_SASS};
constexpr std::int32_t kHeadDims[] = {FA2_CONFIG_HEAD_DIMS};

constexpr std::uint32_t kFeatures = (FA2_CONFIG_HAS_DROPOUT ? FA_FEATURE_DROPOUT : 0) |
                                    (FA2_CONFIG_HAS_ALIBI ? FA_FEATURE_ALIBI : 0) |
                                    (FA2_CONFIG_HAS_SOFTCAP ? FA_FEATURE_SOFTCAP : 0) |
                                    (FA2_CONFIG_HAS_LOCAL ? FA_FEATURE_LOCAL : 0) |
                                    (FA2_CONFIG_HAS_UNEVEN_K ? FA_FEATURE_UNEVEN_K : 0);

// The index in kUnits, or its size if the unit is not there.
std::size_t index_of(std::int32_t pass, std::int32_t dtype, std::int32_t head_dim, bool causal) {
  const auto found = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const fa_unit &unit) {
    return unit.pass == pass && unit.dtype == dtype && unit.head_dim == head_dim &&
           unit.causal == static_cast<std::int32_t>(causal);
  });
  return static_cast<std::size_t>(found - std::begin(kUnits));
}

bool has_unit(std::int32_t pass, std::int32_t dtype, std::int32_t head_dim, bool causal) {
  return index_of(pass, dtype, head_dim, causal) < std::size(kUnits);
}

}  // namespace

ForwardLaunch find_forward(std::int32_t pass, std::int32_t dtype, std::int32_t head_dim,
                           bool causal) {
  const std::size_t index = index_of(pass, dtype, head_dim, causal);
  return index < std::size(kUnits) ? kForward[index] : nullptr;
}

BackwardLaunch find_backward(std::int32_t dtype, std::int32_t head_dim, bool causal) {
  const std::size_t index = index_of(FA_PASS_BWD, dtype, head_dim, causal);
  return index < std::size(kUnits) ? kBackward[index] : nullptr;
}

std::int32_t unit_head_dim(std::int32_t head_dim) {
  const auto *found = std::lower_bound(std::begin(kHeadDims), std::end(kHeadDims), head_dim);
  return found == std::end(kHeadDims) ? 0 : *found;
}

bool has_feature(std::uint32_t feature) { return (kFeatures & feature) != 0; }

const char *feature_name(std::uint32_t feature) {
  switch (feature) {
    case FA_FEATURE_DROPOUT:
      return "dropout";
    case FA_FEATURE_ALIBI:
      return "alibi";
    case FA_FEATURE_SOFTCAP:
      return "softcap";
    case FA_FEATURE_LOCAL:
      return "local";
    default:
      return "uneven_k";
  }
}

const char *dtype_name(std::int32_t dtype) { return dtype == FA_DTYPE_FP16 ? "fp16" : "bf16"; }

bool runs_on(std::int32_t major, std::int32_t minor) {
  return std::any_of(std::begin(kSass), std::end(kSass),
                     [&](std::int32_t sass) { return sass / 10 == major && sass % 10 <= minor; });
}

Text sass_list() {
  Text text;
  for (const std::int32_t sass : kSass) {
    text.add("%s%d", text.empty() ? "" : ", ", sass);
  }
  return text;
}

Text unit_list(std::int32_t pass) {
  Text text;
  for (const std::int32_t dtype : {FA_DTYPE_FP16, FA_DTYPE_BF16}) {
    bool first = true;
    for (const std::int32_t head_dim : kHeadDims) {
      const bool full = has_unit(pass, dtype, head_dim, false);
      const bool causal = has_unit(pass, dtype, head_dim, true);
      if (!full && !causal) {
        continue;
      }
      if (first) {
        text.add("%s%s ", text.empty() ? "" : "; ", dtype_name(dtype));
      }
      text.add("%s%d%s", first ? "" : ", ", head_dim,
               !full     ? " (causal only)"
               : !causal ? " (not causal)"
                         : "");
      first = false;
    }
  }
  if (text.empty()) {
    text.add("none");
  }
  return text;
}

extern const Family family = {
    {
        FA_FAMILY_FA2,
        kFeatures,
        "fa2",
        FA2_CONFIG_UPSTREAM,
        kSass,
        kHeadDims,
        kUnits,
        static_cast<std::int32_t>(std::size(kSass)),
        static_cast<std::int32_t>(std::size(kHeadDims)),
        static_cast<std::int32_t>(std::size(kUnits)),
        static_cast<std::int32_t>(sizeof(fa_unit)),
    },
    {fits, inside, workspace, launch},
    {fits, inside, workspace, launch},
};

}  // namespace flashdepot::fa2
