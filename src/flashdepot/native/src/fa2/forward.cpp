// The forward pass by flash-attention's kernels.
#include <flashdepot/cuda_failure.h>

#include "buffers.h"
#include "error.h"
#include "fa2/gathered.h"
#include "fa2/limits.h"
#include "fa2/packed_lse.h"
#include "fa2/params.h"
#include "fa2/passes.h"
#include "fa2/plan.h"
#include "fa2/splits.h"

namespace flashdepot::fa2 {
namespace {

// The number of splits. Only the automatic number depends on the device.
fa_status choose_splits_for(const ForwardPlan &plan, const fa_fwd_args &args,
                            std::int32_t &splits) {
  const UnitProblem &problem = plan.problem;
  splits = args.num_splits != 0 ? args.num_splits : 1;
  const bool splits_at_all = !problem.dropout() && !(problem.packed() && problem.group == 1);
  if (args.num_splits == 0 && splits_at_all && plan.splitkv != nullptr) {
    DeviceFacts gpu;
    FLASHDEPOT_TRY(read_device(args.device, gpu));
    splits = choose_splits(problem, gpu.multiprocessors);
  }
  Text why;
  if (fits_splits(problem, plan.unit_dim, splits, &why) != Fit::serves) {
    return refuse(FA_STATUS_UNSUPPORTED, "%s", why.c_str());
  }
  return FA_STATUS_OK;
}

// The queries of one key head become rows of one tile (flash_api.cpp 408-414, 595-599 of
// 2.8.3.post2). In a packed batch, where upstream copies q and o to get there, each row becomes a
// batch of its own.
void swap_groups(ForwardParams &params, const UnitProblem &problem, const fa_fwd_args &args) {
  params.q_row_stride = args.q.head_stride;
  params.o_row_stride = args.o.head_stride;
  params.q_head_stride = args.q.head_stride * problem.group;
  params.o_head_stride = args.o.head_stride * problem.group;
  if (problem.packed()) {
    params.q_batch_stride = args.q.row_stride;
    params.o_batch_stride = args.o.row_stride;
    params.cu_seqlens_q = nullptr;
    params.total_q = problem.batch * problem.group;
    params.seqlenq_ngroups_swapped = true;
  }
}

// What mha_fwd_kvcache adds (flash_api.cpp 1352-1436, 1446-1450 of 2.8.3.post2).
void set_cache(ForwardParams &params, const fa_fwd_args &args) {
  params.cu_seqlens_k = const_cast<std::int32_t *>(args.cache_seqlens);
  params.is_seqlens_k_cumulative = args.cache_seqlens == nullptr;
  params.cache_batch_idx = const_cast<std::int32_t *>(args.cache_batch_idx);
  if (args.seqlen_new != 0) {
    params.seqlen_knew = args.seqlen_new;
    params.knew_ptr = const_cast<void *>(args.k_new.data);
    params.vnew_ptr = const_cast<void *>(args.v_new.data);
    params.knew_batch_stride = args.k_new.batch_stride;
    params.vnew_batch_stride = args.v_new.batch_stride;
    params.knew_row_stride = args.k_new.row_stride;
    params.vnew_row_stride = args.v_new.row_stride;
    params.knew_head_stride = args.k_new.head_stride;
    params.vnew_head_stride = args.v_new.head_stride;
  }
  params.rotary_cos_ptr = const_cast<void *>(args.rotary_cos);
  params.rotary_sin_ptr = const_cast<void *>(args.rotary_sin);
  params.rotary_dim = args.rotary_dim;
  params.is_rotary_interleaved = (args.flags & FA_FLAG_ROTARY_INTERLEAVED) != 0;
}

void set_dropout(ForwardParams &params, const fa_fwd_args &args) {
  at::PhiloxCudaState &philox = params.philox_args;
  philox.captured = args.seed_ptr != nullptr;
  if (philox.captured) {
    philox.seed.pointer = args.seed_ptr;
    philox.offset.pointer = args.offset_ptr;
    philox.offset_intragraph = args.offset_intragraph;
  } else {
    philox.seed.value = args.seed;
    philox.offset.value = args.offset;
  }
  params.rng_state = args.rng_state;
  params.p_ptr = args.p_debug;
}

ForwardParams make_params(const ForwardPlan &plan, const fa_fwd_args &args) {
  const UnitProblem &problem = plan.problem;
  ForwardParams params = shape_params(problem, plan.unit_dim);
  set_tensors(params, problem, args);
  if (problem.group > 1) {
    swap_groups(params, problem, args);
  }
  params.leftpad_k = const_cast<std::int32_t *>(args.leftpad_k);
  params.seqused_k = const_cast<std::int32_t *>(args.seqused_k);
  if (problem.kind == Kind::cache) {
    set_cache(params, args);
  }
  if (problem.kind != Kind::dense) {
    params.page_block_size = problem.paged() ? problem.page_size : 1;
  }
  params.block_table = const_cast<std::int32_t *>(args.block_table);
  params.block_table_batch_stride = args.block_table_stride;
  if (problem.dropout()) {
    set_dropout(params, args);
  }
  return params;
}

// lse, where the kernels wrote it to the workspace, to the caller's.
fa_status deliver_lse(const UnitProblem &problem, const fa_fwd_args &args, const float *lse,
                      cudaStream_t stream) {
  if (problem.packed()) {
    return launch_packed_lse(
        {lse, args.lse, args.cu_seqlens_q, args.batch, args.heads_q, args.seqlen_q, args.total_q},
        stream);
  }
  const auto bytes = static_cast<std::size_t>(problem.rows()) * sizeof(float);
  return check_cuda(cudaMemcpyAsync(args.lse, lse, bytes, cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
}

fa_status launch_units(const ForwardPlan &plan, const fa_fwd_args &args, std::int32_t splits,
                       const SplitBuffers &buffers) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  auto *workspace = static_cast<char *>(args.workspace);
  ForwardParams params = make_params(plan, args);
  params.num_splits = splits;
  if (splits > 1) {
    params.oaccum_ptr = workspace;
    params.softmax_lseaccum_ptr = workspace + buffers.lse_accum;
  }
  if (buffers.has_lse) {
    params.softmax_lse_ptr = workspace + buffers.lse;
    params.unpadded_lse = false;
    params.seqlenq_ngroups_swapped = false;
  }
  const bool split_kernel = splits > 1 || plan.problem.split_field != nullptr;
  (split_kernel ? plan.splitkv : plan.forward)(params, stream);
  if (const CudaFailure failure = take_failure(); failure.call != nullptr) {
    return check_cuda(failure.code, failure.call);
  }
  return buffers.has_lse ? deliver_lse(plan.problem, args,
                                       static_cast<const float *>(params.softmax_lse_ptr), stream)
                         : FA_STATUS_OK;
}

fa_status check_row_strides(const UnitProblem &problem, const fa_fwd_args &args) {
  const std::int64_t rows = problem.paged()    ? problem.page_size
                            : problem.packed() ? problem.total_k
                                               : problem.seqlen_k;
  FLASHDEPOT_TRY(check_row_stride("k", args.k.row_stride, rows, "split-KV"));
  FLASHDEPOT_TRY(check_row_stride("v", args.v.row_stride, rows, "split-KV"));
  FLASHDEPOT_TRY(check_row_stride("k_new", args.k_new.row_stride, args.seqlen_new, "split-KV"));
  return check_row_stride("v_new", args.v_new.row_stride, args.seqlen_new, "split-KV");
}

}  // namespace

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why) {
  ForwardPlan plan;
  if (!gathers(call)) {
    return plan_forward(call, gpu, plan, why);
  }
  if (const Fit fit = fits_gathering(call, why); fit != Fit::serves) {
    return fit;
  }
  return plan_forward(over_gathered(call, gathered_of(call), nullptr), gpu, plan, why);
}

Inside inside(const ForwardCall &call, const DeviceFacts &) { return {false, gathers(call)}; }

fa_status workspace(const ForwardCall &call, Workspace &needs) {
  if (gathers(call)) {
    const Gathered gathered = gathered_of(call);
    FLASHDEPOT_TRY(workspace(over_gathered(call, gathered, nullptr), needs));
    needs.bytes += gathered.bytes;
    return FA_STATUS_OK;
  }
  ForwardPlan plan;
  plan_forward(call, nullptr, plan, nullptr);
  FLASHDEPOT_TRY(choose_splits_for(plan, call.args, needs.splits));
  needs.bytes = split_buffers(plan.problem, plan.unit_dim, needs.splits).bytes;
  return FA_STATUS_OK;
}

fa_status launch(const ForwardCall &call, const DeviceFacts &gpu) {
  if (gathers(call)) {
    const Gathered gathered = gathered_of(call);
    FLASHDEPOT_TRY(check_workspace(call.args.workspace_bytes, gathered.bytes, "fa_fwd_workspace"));
    FLASHDEPOT_TRY(gather(call, gathered));
    FLASHDEPOT_TRY(launch(over_gathered(call, gathered, call.args.workspace), gpu));
    return deliver(call, gathered);
  }
  const fa_fwd_args &args = call.args;
  ForwardPlan plan;
  if (plan_forward(call, &gpu, plan, nullptr) != Fit::serves) {
    return refuse(FA_STATUS_INTERNAL,
                  "fa2 was given a forward pass that it does not run; please report this "
                  "with the arguments of the call");
  }
  std::int32_t splits = 1;
  FLASHDEPOT_TRY(choose_splits_for(plan, args, splits));
  const SplitBuffers buffers = split_buffers(plan.problem, plan.unit_dim, splits);
  if (splits > 1 && args.workspace_bytes < buffers.bytes) {
    return refuse(FA_STATUS_WORKSPACE_TOO_SMALL,
                  "workspace_bytes is %llu and %d splits need %llu; fa_fwd_workspace says so too, "
                  "and num_splits 1 needs less",
                  static_cast<unsigned long long>(args.workspace_bytes), splits,
                  static_cast<unsigned long long>(buffers.bytes));
  }
  FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, buffers.bytes, "fa_fwd_workspace"));
  if (splits > 1 || plan.problem.split_field != nullptr) {
    FLASHDEPOT_TRY(check_row_strides(plan.problem, args));
  }
  return launch_units(plan, args, splits, buffers);
}

}  // namespace flashdepot::fa2
