// fa_fwd and fa_fwd_workspace.
#include <cuda_runtime_api.h>

#include <limits>

#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "empty_keys.h"
#include "family.h"
#include "softmax_rows.h"
#include "wide.h"

namespace flashdepot {
namespace {

fa_status forward_without_keys(const ForwardCall &call) {
  const fa_fwd_args &args = call.args;
  const bool packed = call.problem.packed();
  return launch_empty_keys({args.o, args.lse, args.cu_seqlens_q, packed ? 1 : args.batch,
                            packed ? static_cast<std::int32_t>(args.total_q) : args.seqlen_q,
                            args.heads_q, call.problem.head_dim_v, args.batch},
                           static_cast<cudaStream_t>(args.stream));
}

// Copies of what is narrower than the kernels' head dim, at the start of the workspace.
struct WideTensors {
  Wide q, k, v, o;
  std::uint64_t bytes;
};

WideTensors wide_tensors(const Problem &problem) {
  WideTensors wide{};
  wide.q = place_wide(wide.bytes, queries_of(problem, problem.head_dim_q), problem.head_dim);
  wide.k = place_wide(wide.bytes, keys_of(problem, problem.head_dim_q), problem.head_dim);
  wide.v = place_wide(wide.bytes, keys_of(problem, problem.head_dim_v), problem.head_dim);
  wide.o = place_wide(wide.bytes, queries_of(problem, problem.head_dim_v), problem.head_dim);
  return wide;
}

bool is_widened(const ForwardCall &call, const DeviceFacts &gpu, const Family &family) {
  return call.problem.head_dim_q != call.problem.head_dim_v &&
         !family.forward.inside(call, gpu).head_dim_v;
}

fa_status launch_wide(const ForwardCall &call, const DeviceFacts &gpu, const Family &family) {
  const fa_fwd_args &args = call.args;
  const WideTensors wide = wide_tensors(call.problem);
  Workspace needs{0, 1};
  FLASHDEPOT_TRY(family.forward.workspace(call, needs));
  FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, wide.bytes + needs.bytes, "fa_fwd_workspace"));
  ForwardCall inner = call;
  inner.problem.head_dim_q = inner.problem.head_dim_v = call.problem.head_dim;
  inner.args.workspace = static_cast<char *>(args.workspace) + wide.bytes;
  inner.args.workspace_bytes -= wide.bytes;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  FLASHDEPOT_TRY(widen(wide.q, args.q, args.workspace, inner.args.q, stream));
  FLASHDEPOT_TRY(widen(wide.k, args.k, args.workspace, inner.args.k, stream));
  FLASHDEPOT_TRY(widen(wide.v, args.v, args.workspace, inner.args.v, stream));
  inner.args.o = wide_output(wide.o, args.o, args.workspace);
  FLASHDEPOT_TRY(family.forward.launch(inner, gpu));
  return narrow(wide.o, inner.args.o, args.o, args.cu_seqlens_q, args.batch, stream);
}

// A sink, and another lse of rows that see no key.
fa_status finish(const ForwardCall &call, const float *sink) {
  const auto &[args, problem] = call;
  const bool negative = (args.flags & FA_FLAG_EMPTY_LSE_NEG_INF) != 0;
  if (sink == nullptr && !negative) {
    return FA_STATUS_OK;
  }
  const bool packed = problem.packed();
  const float infinity = std::numeric_limits<float>::infinity();
  return launch_finish_rows(
      {args.o, args.lse, sink, args.cu_seqlens_q, packed ? 1 : args.batch,
       packed ? args.total_q : args.seqlen_q, args.heads_q, problem.head_dim_v,
       args.out_dtype != 0 ? args.out_dtype : args.dtype,
       args.batch, negative ? -infinity : infinity, 0},
      static_cast<cudaStream_t>(args.stream));
}

fa_status forward(const fa_fwd_args *args) {
  ForwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  FLASHDEPOT_TRY(check_device(call.args.device));
  FLASHDEPOT_TRY(check_buffers(call.args, call.problem));
  Choice choice{};
  if (call.problem.no_queries()) {
    return choose(call, nullptr, choice);
  }

  cudaGetLastError();  // what is left over from others is theirs
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(call.args.device));
  return run(call, gpu, *choice.family);
}

fa_status forward_workspace(const fa_fwd_args *args, std::uint64_t *bytes, std::int32_t *splits) {
  ForwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  if (bytes == nullptr) {
    return refuse(FA_STATUS_INVALID, "bytes is NULL; pass the address of a uint64_t");
  }
  FLASHDEPOT_TRY(check_device(call.args.device));
  Choice choice{};
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  Workspace needs{0, 1};
  if (!call.problem.no_queries() && !call.problem.no_keys()) {
    FLASHDEPOT_TRY(choice.family->forward.workspace(call, needs));
    if (is_widened(call, gpu, *choice.family)) {
      needs.bytes += wide_tensors(call.problem).bytes;
    }
  }
  *bytes = needs.bytes;
  if (splits != nullptr) {
    *splits = needs.splits;
  }
  return FA_STATUS_OK;
}

}  // namespace

fa_status run(const ForwardCall &call, const DeviceFacts &gpu, const Family &family) {
  const Problem &problem = call.problem;
  if (problem.no_queries()) {
    return FA_STATUS_OK;
  }
  if (problem.no_keys()) {
    FLASHDEPOT_TRY(forward_without_keys(call));
    return finish(call, call.args.sink);
  }
  FLASHDEPOT_TRY(is_widened(call, gpu, family) ? launch_wide(call, gpu, family)
                                               : family.forward.launch(call, gpu));
  return finish(call, family.forward.inside(call, gpu).sink ? nullptr : call.args.sink);
}

}  // namespace flashdepot

fa_status fa_fwd(const fa_fwd_args *args) noexcept { return flashdepot::forward(args); }

fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) noexcept {
  return flashdepot::forward_workspace(args, bytes, splits);
}
