// fa2_fwd, fa2_fwd_workspace and fa2_supports.
#include "arguments.h"
#include "device.h"
#include "empty_keys.h"
#include "problem.h"
#include "splits.h"
#include "units.h"

namespace flashdepot {
namespace {

constexpr double kLog2E = 1.4426950408889634074;

constexpr std::uint32_t kFlags =
    FA2_CAUSAL | FA2_WINDOW_LEFT | FA2_WINDOW_RIGHT | FA2_ROTARY_INTERLEAVED;

fa2_fwd_args read_forward(const fa2_fwd_args *args) {
  return read_args(args, "fa2_fwd_args", kFlags);
}

// The features that a problem needs, FA2_FEATURE_ bits.
std::uint32_t features_of(const Problem &problem, std::int32_t unit_dim) {
  return (problem.alibi ? FA2_FEATURE_ALIBI : 0) |
         (problem.softcap > 0.0f ? FA2_FEATURE_SOFTCAP : 0) |
         (problem.local() ? FA2_FEATURE_LOCAL : 0) |
         (problem.head_dim != unit_dim ? FA2_FEATURE_UNEVEN_K : 0);
}

// " --features alibi,local"; empty if none is needed.
Text feature_option(std::uint32_t features) {
  Text text;
  for (std::uint32_t feature = 1; feature <= FA2_FEATURE_UNEVEN_K; feature <<= 1) {
    if ((features & feature) != 0) {
      text.add("%s%s", text.empty() ? " --features " : ",", feature_name(feature));
    }
  }
  return text;
}

[[noreturn]] void refuse_unit(std::int32_t pass, const Problem &problem, std::int32_t unit_dim) {
  const bool split = pass == FA2_SPLITKV;
  refuse(FA2_UNSUPPORTED,
         "head dim %d %s %s%s is not in this library (it has: %s); build it with: flashdepot get "
         "--passes %s --head-dims %d --dtypes %s%s",
         unit_dim, dtype_name(problem.dtype), problem.causal ? "causal " : "",
         split ? "split-KV forward (num_splits > 1)" : "forward", unit_list(pass).c_str(),
         split ? "fwd,splitkv" : "fwd", unit_dim, dtype_name(problem.dtype),
         feature_option(features_of(problem, unit_dim)).c_str());
}

[[noreturn]] void refuse_feature(std::uint32_t feature, const Problem &problem,
                                 std::int32_t unit_dim) {
  Text reason;
  switch (feature) {
    case FA2_FEATURE_ALIBI:
      reason.add("alibi_slopes is set");
      break;
    case FA2_FEATURE_SOFTCAP:
      reason.add("softcap is %g", static_cast<double>(problem.softcap));
      break;
    case FA2_FEATURE_LOCAL:
      reason.add("window_left or window_right is set and ends short of the %d keys",
                 problem.seqlen_k);
      break;
    default:
      reason.add("head_dim is %d, which runs in the kernels for %d", problem.head_dim, unit_dim);
  }
  refuse(FA2_UNSUPPORTED,
         "%s, and this library was built without %s; build it with: flashdepot get --passes fwd "
         "--head-dims %d --dtypes %s%s",
         reason.c_str(), feature_name(feature), unit_dim, dtype_name(problem.dtype),
         feature_option(features_of(problem, unit_dim)).c_str());
}

// A problem and the units of this library that solve it.
struct Plan {
  Problem problem;
  std::int32_t unit_dim;
  Launch forward;
  Launch splitkv;  // nullptr if it is not in this library
};

// Refuses what is not in this library.
Plan make_plan(const Problem &problem, std::int32_t num_splits) {
  Plan plan{};
  plan.problem = problem;
  plan.unit_dim = unit_head_dim(problem.head_dim);
  if (plan.unit_dim == 0) {
    refuse(FA2_UNSUPPORTED, "head_dim is %d, and upstream has no kernel as wide (it has: %s)",
           problem.head_dim, unit_list(FA2_FWD).c_str());
  }
  plan.forward = find_unit(FA2_FWD, problem.dtype, plan.unit_dim, problem.causal);
  plan.splitkv = find_unit(FA2_SPLITKV, problem.dtype, plan.unit_dim, problem.causal);
  if (num_splits > 1 ? plan.splitkv == nullptr : plan.forward == nullptr) {
    refuse_unit(num_splits > 1 ? FA2_SPLITKV : FA2_FWD, problem, plan.unit_dim);
  }
  const std::uint32_t features = features_of(problem, plan.unit_dim);
  for (std::uint32_t feature = 1; feature <= FA2_FEATURE_UNEVEN_K; feature <<= 1) {
    if ((features & feature) != 0 && !has_feature(feature)) {
      refuse_feature(feature, problem, plan.unit_dim);
    }
  }
  return plan;
}

// The number of splits for a caller that has a workspace, or asks how large it must be.
std::int32_t splits_of(const Plan &plan, const fa2_fwd_args &args) {
  if (plan.problem.no_queries() || plan.problem.no_keys()) {
    return 1;
  }
  if (args.num_splits != 0) {
    return args.num_splits;
  }
  if (plan.splitkv == nullptr) {
    return 1;
  }
  return choose_splits(plan.problem, device_facts(args.device).multiprocessors);
}

// What mha_fwd and set_params_fprop put there (flash_api.cpp 26-159).
flash_params make_params(const Plan &plan, const fa2_fwd_args &args) {
  const Problem &problem = plan.problem;
  flash_params params{};
  params.is_bf16 = problem.dtype == FA2_BF16;

  params.q_ptr = args.q.data;
  params.k_ptr = args.k.data;
  params.v_ptr = args.v.data;
  params.o_ptr = args.o.data;
  params.q_batch_stride = args.q.batch_stride;
  params.k_batch_stride = args.k.batch_stride;
  params.v_batch_stride = args.v.batch_stride;
  params.o_batch_stride = args.o.batch_stride;
  params.k_row_stride = args.k.row_stride;
  params.v_row_stride = args.v.row_stride;
  params.k_head_stride = args.k.head_stride;
  params.v_head_stride = args.v.head_stride;
  if (problem.group > 1) {
    params.q_row_stride = args.q.head_stride;
    params.o_row_stride = args.o.head_stride;
    params.q_head_stride = args.q.head_stride * problem.group;
    params.o_head_stride = args.o.head_stride * problem.group;
  } else {
    params.q_row_stride = args.q.row_stride;
    params.o_row_stride = args.o.row_stride;
    params.q_head_stride = args.q.head_stride;
    params.o_head_stride = args.o.head_stride;
  }
  params.softmax_lse_ptr = args.lse;

  const auto round_up = [](std::int32_t value) { return (value + 127) / 128 * 128; };
  params.b = problem.batch;
  params.h = problem.heads_q;
  params.h_k = problem.heads_k;
  params.h_h_k_ratio = problem.heads_q / problem.heads_k;
  params.seqlen_q = problem.seqlen_q;
  params.seqlen_k = problem.seqlen_k;
  params.seqlen_q_rounded = round_up(problem.seqlen_q);
  params.seqlen_k_rounded = round_up(problem.seqlen_k);
  params.d = problem.head_dim;
  params.d_rounded = plan.unit_dim;

  // With softcap the kernels compute scale_softmax * tanh(softcap * score), so the two change
  // places.
  const bool capped = problem.softcap > 0.0f;
  params.softcap = capped ? problem.scale / problem.softcap : 0.0f;
  params.scale_softmax = capped ? problem.softcap : problem.scale;
  params.scale_softmax_log2 = static_cast<float>(params.scale_softmax * kLog2E);

  // Here p_dropout is the probability of keeping.
  params.p_dropout = 1.0f;
  params.p_dropout_in_uint8_t = 255;
  params.rp_dropout = 1.0f;
  params.scale_softmax_rp_dropout = params.scale_softmax;

  params.is_causal = problem.causal;
  params.window_size_left = problem.window_left;
  params.window_size_right = problem.window_right;
  params.is_seqlens_k_cumulative = true;

  params.alibi_slopes_ptr = const_cast<float *>(args.alibi_slopes);
  params.alibi_slopes_batch_stride = args.alibi_batch_stride;
  return params;
}

void launch_split(const Plan &plan, const fa2_fwd_args &args, std::int32_t splits,
                  const SplitBuffers &buffers, cudaStream_t stream) {
  auto *workspace = static_cast<char *>(args.workspace);
  flash_params params = make_params(plan, args);
  params.num_splits = splits;
  params.oaccum_ptr = workspace;
  params.softmax_lseaccum_ptr = workspace + buffers.lse_accum;
  if (buffers.needs_lse_padded) {
    params.softmax_lse_ptr = workspace + buffers.lse_padded;
  }
  plan.splitkv(params, stream);
  if (buffers.needs_lse_padded) {
    const auto bytes = static_cast<std::size_t>(plan.problem.rows()) * sizeof(float);
    C10_CUDA_CHECK(
        cudaMemcpyAsync(args.lse, params.softmax_lse_ptr, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

void forward(const fa2_fwd_args &args) {
  const Problem problem = read_problem(args);
  check_device(args.device);
  check_buffers(args);
  const Plan plan = make_plan(problem, args.num_splits);
  if (problem.no_queries()) {
    return;
  }

  cudaGetLastError();  // what is left over from others is theirs
  require_kernels_for(args.device);
  const bool automatic_without_memory = args.num_splits == 0 && args.workspace == nullptr;
  const std::int32_t splits = automatic_without_memory ? 1 : splits_of(plan, args);
  SplitBuffers buffers{};
  if (splits > 1) {
    buffers = split_buffers(problem, plan.unit_dim, splits);
    if (args.workspace_bytes < buffers.bytes) {
      refuse(FA2_WORKSPACE_TOO_SMALL,
             "workspace_bytes is %llu and %d splits need %llu; fa2_fwd_workspace says so too, and "
             "num_splits 1 needs none",
             static_cast<unsigned long long>(args.workspace_bytes), splits,
             static_cast<unsigned long long>(buffers.bytes));
    }
  }

  const CurrentDevice current(args.device);
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.no_keys()) {
    launch_empty_keys({args.o, args.lse, args.batch, args.seqlen_q, args.heads_q, args.head_dim},
                      stream);
  } else if (splits > 1) {
    launch_split(plan, args, splits, buffers, stream);
  } else {
    flash_params params = make_params(plan, args);
    params.num_splits = 1;
    plan.forward(params, stream);
  }
}

}  // namespace
}  // namespace flashdepot

fa2_status fa2_fwd(const fa2_fwd_args *args) noexcept {
  using namespace flashdepot;
  return guarded([&] { forward(read_forward(args)); });
}

fa2_status fa2_fwd_workspace(const fa2_fwd_args *args, uint64_t *bytes, int32_t *splits) noexcept {
  using namespace flashdepot;
  return guarded([&] {
    const fa2_fwd_args known = read_forward(args);
    if (bytes == nullptr) {
      refuse(FA2_INVALID, "bytes is NULL; pass the address of a uint64_t");
    }
    const Problem problem = read_problem(known);
    check_device(known.device);
    const Plan plan = make_plan(problem, known.num_splits);
    const std::int32_t count = splits_of(plan, known);
    *bytes = count > 1 ? split_buffers(plan.problem, plan.unit_dim, count).bytes : 0;
    if (splits != nullptr) {
      *splits = count;
    }
  });
}

fa2_status fa2_supports(int32_t device, const fa2_fwd_args *args) noexcept {
  using namespace flashdepot;
  return guarded([&] {
    const fa2_fwd_args known = read_forward(args);
    const Plan plan = make_plan(read_problem(known), known.num_splits);
    if (known.num_splits > 1 && !plan.problem.no_queries() && !plan.problem.no_keys()) {
      split_buffers(plan.problem, plan.unit_dim, known.num_splits);
    }
    if (device != -1) {
      check_device(device);
      require_kernels_for(device);
    }
  });
}
