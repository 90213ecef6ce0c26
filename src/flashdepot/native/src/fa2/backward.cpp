// The backward pass by flash-attention's kernels.
#include <flashdepot/cuda_failure.h>

#include "buffers.h"
#include "divide.h"
#include "error.h"
#include "fa2/after_launch.h"
#include "fa2/group_sum.h"
#include "fa2/limits.h"
#include "fa2/params.h"
#include "fa2/passes.h"
#include "fa2/plan.h"

namespace flashdepot::fa2 {
namespace {

// The workspace. dq_accum, float (parts, rows, heads_q, unit_dim), is at 0; other offsets are in
// bytes. dk and dv of each query head, (batch, seqlen_k, heads_q, head_dim) or (total_k, ..) of
// dtype, are there while query heads share key heads.
struct BackwardBuffers {
  std::int64_t part;  // floats of one part of dq_accum
  std::int32_t parts;
  std::uint64_t dk, dv;
  std::uint64_t bytes;

  std::uint64_t dq_accum_bytes() const {
    return static_cast<std::uint64_t>(part) * static_cast<std::uint64_t>(parts) * sizeof(float);
  }
};

bool shares_keys(const UnitProblem &problem) { return problem.heads_q != problem.heads_k; }

std::int64_t key_rows(const UnitProblem &problem) {
  return problem.packed() ? problem.total_k : std::int64_t{problem.batch} * problem.seqlen_k;
}

// Only the deterministic pass asks for the device.
fa_status plan_buffers(const BackwardPlan &plan, const BackwardCall &call,
                       BackwardBuffers &buffers) {
  const UnitProblem &problem = plan.problem;
  buffers = {};
  // Blocks of rows reach past the end of a sequence: a packed batch has a block between each two
  // (flash_api.cpp 1103-1112 of 2.8.3.post2), as softmax_d has.
  buffers.part = softmax_d_rows(call.problem) * problem.heads_q * plan.unit_dim;
  buffers.parts = 1;
  if (problem.deterministic) {
    // Each block of a batch and head adds to a dq of its own (flash_bwd_launch_template.h 77-80 of
    // 2.8.3.post2).
    DeviceFacts gpu;
    FLASHDEPOT_TRY(read_device(call.args.device, gpu));
    const std::int32_t heads = problem.batch * problem.heads_q;
    buffers.parts = divide_up(gpu.multiprocessors, heads);
  }
  buffers.dk = buffers.dq_accum_bytes();
  const auto expanded = static_cast<std::uint64_t>(
      shares_keys(problem) ? key_rows(problem) * problem.heads_q * problem.head_dim * 2 : 0);
  buffers.dv = buffers.dk + expanded;
  buffers.bytes = buffers.dv + expanded;
  return FA_STATUS_OK;
}

// What set_params_dgrad adds (flash_api.cpp 201-240 of 2.8.3.post2).
BackwardParams make_params(const BackwardPlan &plan, const fa_bwd_args &args,
                           const BackwardBuffers &buffers) {
  const UnitProblem &problem = plan.problem;
  auto *workspace = static_cast<char *>(args.workspace);
  BackwardParams params{};
  static_cast<ForwardParams &>(params) = shape_params(problem, plan.unit_dim);
  set_tensors(params, problem, args);

  fa_tensor dk = args.dk;
  fa_tensor dv = args.dv;
  if (shares_keys(problem)) {
    const std::int64_t row = std::int64_t{problem.heads_q} * problem.head_dim;
    dk = fa_make_tensor(workspace + buffers.dk, row * problem.seqlen_k, row, problem.head_dim);
    dv = fa_make_tensor(workspace + buffers.dv, row * problem.seqlen_k, row, problem.head_dim);
  }
  params.do_ptr = const_cast<void *>(args.d_o.data);
  params.dq_ptr = args.dq.data;
  params.dk_ptr = dk.data;
  params.dv_ptr = dv.data;
  params.do_row_stride = args.d_o.row_stride;
  params.dq_row_stride = args.dq.row_stride;
  params.dk_row_stride = dk.row_stride;
  params.dv_row_stride = dv.row_stride;
  params.do_head_stride = args.d_o.head_stride;
  params.dq_head_stride = args.dq.head_stride;
  params.dk_head_stride = dk.head_stride;
  params.dv_head_stride = dv.head_stride;
  if (!problem.packed()) {
    params.do_batch_stride = args.d_o.batch_stride;
    params.dq_batch_stride = args.dq.batch_stride;
    params.dk_batch_stride = dk.batch_stride;
    params.dv_batch_stride = dv.batch_stride;
  }
  params.dq_accum_ptr = workspace;
  params.dsoftmax_sum = args.softmax_d;
  params.deterministic = problem.deterministic;
  params.dq_accum_split_stride = problem.deterministic ? buffers.part : 0;
  if (problem.dropout()) {
    params.rng_state = const_cast<std::uint64_t *>(args.rng_state);
  }
  return params;
}

Gradient key_gradient(const UnitProblem &problem, const fa_tensor &tensor) {
  return problem.packed()
             ? Gradient{tensor, 1, problem.total_k, problem.heads_k, problem.head_dim}
             : Gradient{tensor, problem.batch, problem.seqlen_k, problem.heads_k, problem.head_dim};
}

struct Subtraction {
  SoftmaxSums sums;
  cudaStream_t stream;
};

fa_status subtract_d_lse(const void *data) {
  const auto &subtraction = *static_cast<const Subtraction *>(data);
  return launch_subtract_d_lse(subtraction.sums, subtraction.stream);
}

fa_status launch_units(const BackwardPlan &plan, const BackwardCall &call,
                       const BackwardBuffers &buffers) {
  const fa_bwd_args &args = call.args;
  const UnitProblem &problem = plan.problem;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  BackwardParams params = make_params(plan, args, buffers);
  if (problem.deterministic) {
    // Else the kernels clear what they are going to add to.
    FLASHDEPOT_TRY(check_cuda(cudaMemsetAsync(args.workspace, 0, buffers.dq_accum_bytes(), stream),
                              "cudaMemsetAsync"));
  }
  const Subtraction subtraction{softmax_sums(call), stream};
  if (args.d_lse != nullptr) {
    after_next_launch(subtract_d_lse, &subtraction);
  }
  plan.backward(params, stream);
  const fa_status subtracted = end_of_launches();
  if (const CudaFailure failure = take_failure(); failure.call != nullptr) {
    return check_cuda(failure.code, failure.call);
  }
  FLASHDEPOT_TRY(subtracted);
  if (!shares_keys(problem)) {
    return FA_STATUS_OK;
  }
  const std::int32_t group = problem.heads_q / problem.heads_k;
  FLASHDEPOT_TRY(launch_group_sum(key_gradient(problem, args.dk), params.dk_ptr, group,
                                  problem.dtype, stream));
  return launch_group_sum(key_gradient(problem, args.dv), params.dv_ptr, group, problem.dtype,
                          stream);
}

fa_status check_row_strides(const UnitProblem &problem, const fa_bwd_args &args) {
  const std::int64_t rows = problem.packed() ? problem.total_q : problem.seqlen_q;
  FLASHDEPOT_TRY(check_row_stride("q", args.q.row_stride, rows, "backward"));
  FLASHDEPOT_TRY(check_row_stride("o", args.o.row_stride, rows, "backward"));
  FLASHDEPOT_TRY(check_row_stride("d_o", args.d_o.row_stride, rows, "backward"));
  return check_row_stride("dq", args.dq.row_stride, rows, "backward");
}

}  // namespace

Fit fits(const BackwardCall &call, const DeviceFacts *gpu, Text *why) {
  BackwardPlan plan;
  return plan_backward(call, gpu, plan, why);
}

Inside inside(const BackwardCall &, const DeviceFacts &) { return {false, false}; }

fa_status workspace(const BackwardCall &call, Workspace &needs) {
  BackwardPlan plan;
  plan_backward(call, nullptr, plan, nullptr);
  BackwardBuffers buffers;
  FLASHDEPOT_TRY(plan_buffers(plan, call, buffers));
  needs = {buffers.bytes, 1};
  return FA_STATUS_OK;
}

fa_status launch(const BackwardCall &call, const DeviceFacts &gpu) {
  BackwardPlan plan;
  if (plan_backward(call, &gpu, plan, nullptr) != Fit::serves) {
    return refuse(FA_STATUS_INTERNAL,
                  "fa2 was given a backward pass that it does not run; please report "
                  "this with the arguments of the call");
  }
  BackwardBuffers buffers;
  FLASHDEPOT_TRY(plan_buffers(plan, call, buffers));
  FLASHDEPOT_TRY(check_workspace(call.args.workspace_bytes, buffers.bytes, "fa_bwd_workspace"));
  FLASHDEPOT_TRY(check_row_strides(plan.problem, call.args));
  return launch_units(plan, call, buffers);
}

}  // namespace flashdepot::fa2
