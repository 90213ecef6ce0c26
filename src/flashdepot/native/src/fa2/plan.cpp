#include "fa2/plan.h"

#include "fa2/limits.h"
#include "fa2/splits.h"
#include "fa_config.h"

namespace flashdepot::fa2 {
namespace {

// The features that a problem needs, FA_FEATURE_ bits.
std::uint32_t features_of(const UnitProblem &problem, std::int32_t unit_dim) {
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
  return pass == FA_PASS_SPLITKV ? "fwd,splitkv" : pass == FA_PASS_BWD ? "fwd,bwd" : "fwd";
}

// "forward", "split-KV forward (num_splits > 1)", "split-KV forward (block_table is set)" ..
Text pass_name(std::int32_t pass, const UnitProblem &problem) {
  Text text;
  if (pass == FA_PASS_SPLITKV && problem.split_field != nullptr) {
    text.add("split-KV forward (%s is set)", problem.split_field);
  } else {
    text.add("%s", pass == FA_PASS_SPLITKV ? "split-KV forward (num_splits > 1)"
                   : pass == FA_PASS_BWD   ? "backward"
                                      : "forward");
  }
  return text;
}

Fit decline_unit(Text *why, std::int32_t pass, const UnitProblem &problem, std::int32_t unit_dim) {
  if (why == nullptr) {
    return Fit::unsupported;
  }
  return decline(
      why, Fit::unsupported,
      "head dim %d %s %s%s is not in this library (it has: %s); build it with: flashdepot get "
      "--passes %s --head-dims %d --dtypes %s%s",
      unit_dim, dtype_name(problem.dtype), problem.causal ? "causal " : "",
      pass_name(pass, problem).c_str(), unit_list(pass).c_str(), pass_option(pass), unit_dim,
      dtype_name(problem.dtype), feature_option(features_of(problem, unit_dim)).c_str());
}

Fit decline_feature(Text *why, std::int32_t pass, std::uint32_t feature, const UnitProblem &problem,
                    std::int32_t unit_dim) {
  if (why == nullptr) {
    return Fit::unsupported;
  }
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
  return decline(why, Fit::unsupported,
                 "%s, and this library was built without %s; build it with: flashdepot get "
                 "--passes %s --head-dims %d --dtypes %s%s",
                 reason.c_str(), feature_name(feature), pass_option(pass), unit_dim,
                 dtype_name(problem.dtype), feature_option(features_of(problem, unit_dim)).c_str());
}

// Whether the unit of this pass, if it is there, was built with what the problem needs.
Fit fits_unit(std::int32_t pass, bool found, const UnitProblem &problem, std::int32_t unit_dim,
              Text *why) {
  if (unit_dim == 0) {
    return decline(why, Fit::unsupported,
                   "head_dim is %d, and upstream has no kernel as wide (it has: %s)",
                   problem.head_dim, why == nullptr ? "" : unit_list(pass).c_str());
  }
  if (!found) {
    return decline_unit(why, pass, problem, unit_dim);
  }
  const std::uint32_t features = features_of(problem, unit_dim);
  for (std::uint32_t feature = 1; feature <= FA_FEATURE_UNEVEN_K; feature <<= 1) {
    if ((features & feature) != 0 && !has_feature(feature)) {
      return decline_feature(why, pass, feature, problem, unit_dim);
    }
  }
  return Fit::serves;
}

Fit fits_gpu(const DeviceFacts *gpu, Text *why) {
  if (gpu == nullptr || runs_on(gpu->major, gpu->minor)) {
    return Fit::serves;
  }
  return decline(why, Fit::no_kernel_for_arch,
                 "device %d has compute capability %d.%d and this library has kernels for %s; get "
                 "one for it with: flashdepot get --arch %d%d",
                 gpu->ordinal, gpu->major, gpu->minor, why == nullptr ? "" : sass_list().c_str(),
                 gpu->major, gpu->minor);
}

// The kernels for head dim 256 return without doing anything where they need more shared memory
// with dropout than the GPU has (flash_bwd_launch_template.h 309-317 of 2.8.3.post2).
Fit fits_shared_memory(const BackwardPlan &plan, const DeviceFacts *gpu, Text *why) {
  constexpr std::int32_t kNeeded = 144;
  if (gpu == nullptr || plan.unit_dim <= 192 || !plan.problem.dropout() ||
      gpu->shared_kilobytes >= kNeeded) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "dropout is %g and head_dim is %d; its backward kernels need %d KB of shared "
                 "memory and device %d (compute capability %d.%d) has %d: use a head_dim up to 192 "
                 "or no dropout",
                 static_cast<double>(1.0f - plan.problem.keep), plan.problem.head_dim, kNeeded,
                 gpu->ordinal, gpu->major, gpu->minor, gpu->shared_kilobytes);
}

Fit fits_dq_index(const BackwardCall &call, std::int32_t unit_dim, Text *why) {
  const std::int64_t elements = softmax_d_rows(call.problem) * call.problem.heads_q * unit_dim;
  if (FA2_CONFIG_DQ_INDEX_BITS == 64 || elements <= INT32_MAX) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "the float dq of this problem has %lld elements (rows, padded, x heads_q x %d), "
                 "and the kernels of flash-attention %s index it with 32 bits: split the batch, or "
                 "build from " FA2_CONFIG_DQ_INDEX_64_SINCE,
                 static_cast<long long>(elements), unit_dim, FA2_CONFIG_UPSTREAM);
}

}  // namespace

Fit plan_forward(const ForwardCall &call, const DeviceFacts *gpu, ForwardPlan &plan, Text *why) {
  plan.problem = unit_problem(call);
  const UnitProblem &problem = plan.problem;
  if (const Fit fit = fits_limits(call, problem, why); fit != Fit::serves) {
    return fit;
  }
  const bool splits = call.args.num_splits > 1 || problem.split_field != nullptr;
  plan.unit_dim = unit_head_dim(problem.head_dim);
  plan.forward = find_forward(FA_PASS_FWD, problem.dtype, plan.unit_dim, problem.causal);
  plan.splitkv = find_forward(FA_PASS_SPLITKV, problem.dtype, plan.unit_dim, problem.causal);
  const bool found = (splits ? plan.splitkv : plan.forward) != nullptr;
  if (const Fit fit = fits_unit(splits ? FA_PASS_SPLITKV : FA_PASS_FWD, found, problem, plan.unit_dim, why);
      fit != Fit::serves) {
    return fit;
  }
  if (!call.problem.no_queries() && !call.problem.no_keys()) {
    if (const Fit fit = fits_splits(problem, plan.unit_dim, call.args.num_splits, why);
        fit != Fit::serves) {
      return fit;
    }
  }
  return fits_gpu(gpu, why);
}

Fit plan_backward(const BackwardCall &call, const DeviceFacts *gpu, BackwardPlan &plan, Text *why) {
  plan.problem = unit_problem(call);
  const UnitProblem &problem = plan.problem;
  if (const Fit fit = fits_limits(call, why); fit != Fit::serves) {
    return fit;
  }
  plan.unit_dim = unit_head_dim(problem.head_dim);
  plan.backward = find_backward(problem.dtype, plan.unit_dim, problem.causal);
  if (const Fit fit = fits_unit(FA_PASS_BWD, plan.backward != nullptr, problem, plan.unit_dim, why);
      fit != Fit::serves) {
    return fit;
  }
  if (const Fit fit = fits_gpu(gpu, why); fit != Fit::serves) {
    return fit;
  }
  if (const Fit fit = fits_shared_memory(plan, gpu, why); fit != Fit::serves) {
    return fit;
  }
  const bool nothing = call.problem.no_queries() || call.problem.no_keys();
  return nothing ? Fit::serves : fits_dq_index(call, plan.unit_dim, why);
}

}  // namespace flashdepot::fa2
