// fa_bwd and fa_bwd_workspace.
#include <cuda_runtime_api.h>

#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "family.h"
#include "zeros.h"

namespace flashdepot {
namespace {

fa_status backward_without_queries(const BackwardCall &call, cudaStream_t stream) {
  const auto &[args, problem] = call;
  const bool packed = problem.packed();
  const std::int32_t batch = packed ? 1 : args.batch;
  const std::int64_t rows = packed ? args.total_k : args.seqlen_k;
  FLASHDEPOT_TRY(launch_zeros({args.dk, batch, rows, args.heads_k, args.head_dim}, stream));
  return launch_zeros({args.dv, batch, rows, args.heads_k, args.head_dim}, stream);
}

fa_status backward_without_keys(const BackwardCall &call, cudaStream_t stream) {
  const auto &[args, problem] = call;
  const bool packed = problem.packed();
  FLASHDEPOT_TRY(launch_zeros({args.dq, packed ? 1 : args.batch,
                               packed ? args.total_q : args.seqlen_q, args.heads_q, args.head_dim},
                              stream));
  const std::size_t bytes =
      static_cast<std::size_t>(softmax_d_rows(problem) * args.heads_q) * sizeof(float);
  return check_cuda(cudaMemsetAsync(args.softmax_d, 0, bytes, stream), "cudaMemsetAsync");
}

fa_status backward(const fa_bwd_args *args) {
  BackwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  const Problem &problem = call.problem;
  FLASHDEPOT_TRY(check_device(call.args.device));
  FLASHDEPOT_TRY(check_buffers(call.args, problem));
  Choice choice{};
  if (problem.batch == 0 || (problem.no_queries() && problem.no_keys())) {
    return choose(call, nullptr, choice);
  }

  cudaGetLastError();  // what is left over from others is theirs
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(call.args.device));
  const auto stream = static_cast<cudaStream_t>(call.args.stream);
  return problem.no_queries() ? backward_without_queries(call, stream)
         : problem.no_keys()  ? backward_without_keys(call, stream)
                              : choice.family->backward.launch(call, gpu);
}

fa_status backward_workspace(const fa_bwd_args *args, std::uint64_t *bytes) {
  BackwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  if (bytes == nullptr) {
    return refuse(FA_INVALID, "bytes is NULL; pass the address of a uint64_t");
  }
  FLASHDEPOT_TRY(check_device(call.args.device));
  Choice choice{};
  DeviceFacts gpu;
  const bool nothing = call.problem.no_queries() || call.problem.no_keys();
  FLASHDEPOT_TRY(!nothing && depends_on_gpu(call.args.family)
                     ? choose_on(call.args.device, call, gpu, choice)
                     : choose(call, nullptr, choice));
  Workspace needs{0, 1};
  if (!nothing) {
    FLASHDEPOT_TRY(choice.family->backward.workspace(call, needs));
  }
  *bytes = needs.bytes;
  return FA_OK;
}

}  // namespace
}  // namespace flashdepot

fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) noexcept {
  return flashdepot::backward_workspace(args, bytes);
}

fa_status fa_bwd(const fa_bwd_args *args) noexcept { return flashdepot::backward(args); }
