#include "support.h"

#include "error.h"

namespace flashdepot {
namespace {

// The features that a problem needs, FA_FEATURE_ bits.
std::uint32_t features_of(const Problem &problem, std::int32_t unit_dim) {
  return (problem.dropout() ? FA_FEATURE_DROPOUT : 0) | (problem.alibi ? FA_FEATURE_ALIBI : 0) |
         (problem.softcap > 0.0f ? FA_FEATURE_SOFTCAP : 0) |
         (problem.local() ? FA_FEATURE_LOCAL : 0) |
         (problem.head_dim != unit_dim ? FA_FEATURE_UNEVEN_K : 0);
}

// " --features alibi,local"; empty if none is needed.
Text feature_option(std::uint32_t features) {
  Text text;
  for (std::uint32_t feature = 1; feature <= FA_FEATURE_UNEVEN_K; feature <<= 1) {
    if ((features & feature) != 0) {
      text.add("%s%s", text.empty() ? " --features " : ",", feature_name(feature));
    }
  }
  return text;
}

// The passes that a selection for this one should have.
const char *pass_option(std::int32_t pass) {
  return pass == FA_SPLITKV ? "fwd,splitkv" : pass == FA_BWD ? "fwd,bwd" : "fwd";
}

// "forward", "split-KV forward (num_splits > 1)", "split-KV forward (block_table is set)" ..
Text pass_name(std::int32_t pass, const Problem &problem) {
  Text text;
  if (pass == FA_SPLITKV && problem.split_field != nullptr) {
    text.add("split-KV forward (%s is set)", problem.split_field);
  } else {
    text.add("%s", pass == FA_SPLITKV ? "split-KV forward (num_splits > 1)"
                   : pass == FA_BWD   ? "backward"
                                      : "forward");
  }
  return text;
}

[[noreturn]] void refuse_unit(std::int32_t pass, const Problem &problem, std::int32_t unit_dim) {
  refuse(FA_UNSUPPORTED,
         "head dim %d %s %s%s is not in this library (it has: %s); build it with: flashdepot get "
         "--passes %s --head-dims %d --dtypes %s%s",
         unit_dim, dtype_name(problem.dtype), problem.causal ? "causal " : "",
         pass_name(pass, problem).c_str(), unit_list(pass).c_str(), pass_option(pass), unit_dim,
         dtype_name(problem.dtype), feature_option(features_of(problem, unit_dim)).c_str());
}

[[noreturn]] void refuse_feature(std::int32_t pass, std::uint32_t feature, const Problem &problem,
                                 std::int32_t unit_dim) {
  Text reason;
  switch (feature) {
    case FA_FEATURE_DROPOUT:
      reason.add("dropout is %g", static_cast<double>(1.0f - problem.keep));
      break;
    case FA_FEATURE_ALIBI:
      reason.add("alibi_slopes is set");
      break;
    case FA_FEATURE_SOFTCAP:
      reason.add("softcap is %g", static_cast<double>(problem.softcap));
      break;
    case FA_FEATURE_LOCAL:
      reason.add("window_left or window_right is set and ends short of the %d keys",
                 problem.seqlen_k);
      break;
    default:
      reason.add("head_dim is %d, which runs in the kernels for %d", problem.head_dim, unit_dim);
  }
  refuse(FA_UNSUPPORTED,
         "%s, and this library was built without %s; build it with: flashdepot get --passes %s "
         "--head-dims %d --dtypes %s%s",
         reason.c_str(), feature_name(feature), pass_option(pass), unit_dim,
         dtype_name(problem.dtype), feature_option(features_of(problem, unit_dim)).c_str());
}

std::int32_t require_unit_dim(std::int32_t pass, const Problem &problem) {
  const std::int32_t unit_dim = unit_head_dim(problem.head_dim);
  if (unit_dim == 0) {
    refuse(FA_UNSUPPORTED, "head_dim is %d, and upstream has no kernel as wide (it has: %s)",
           problem.head_dim, unit_list(pass).c_str());
  }
  return unit_dim;
}

void require_features(std::int32_t pass, const Problem &problem, std::int32_t unit_dim) {
  const std::uint32_t features = features_of(problem, unit_dim);
  for (std::uint32_t feature = 1; feature <= FA_FEATURE_UNEVEN_K; feature <<= 1) {
    if ((features & feature) != 0 && !has_feature(feature)) {
      refuse_feature(pass, feature, problem, unit_dim);
    }
  }
}

}  // namespace

ForwardPlan plan_forward(const Problem &problem, std::int32_t num_splits) {
  const std::int32_t pass = num_splits > 1 || problem.split_field != nullptr ? FA_SPLITKV : FA_FWD;
  ForwardPlan plan{};
  plan.problem = problem;
  plan.unit_dim = require_unit_dim(pass, problem);
  plan.forward = find_forward(FA_FWD, problem.dtype, plan.unit_dim, problem.causal);
  plan.splitkv = find_forward(FA_SPLITKV, problem.dtype, plan.unit_dim, problem.causal);
  if ((pass == FA_SPLITKV ? plan.splitkv : plan.forward) == nullptr) {
    refuse_unit(pass, problem, plan.unit_dim);
  }
  require_features(pass, problem, plan.unit_dim);
  return plan;
}

BackwardPlan plan_backward(const Problem &problem) {
  BackwardPlan plan{};
  plan.problem = problem;
  plan.unit_dim = require_unit_dim(FA_BWD, problem);
  plan.backward = find_backward(problem.dtype, plan.unit_dim, problem.causal);
  if (plan.backward == nullptr) {
    refuse_unit(FA_BWD, problem, plan.unit_dim);
  }
  require_features(FA_BWD, problem, plan.unit_dim);
  return plan;
}

}  // namespace flashdepot
