// fa_bwd and fa_bwd_workspace.
#include <cuda_runtime_api.h>

#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "divide.h"
#include "family.h"
#include "softmax_rows.h"
#include "wide.h"
#include "zeros.h"

namespace flashdepot {
namespace {

fa_status backward_without_queries(const BackwardCall &call, cudaStream_t stream) {
  const auto &[args, problem] = call;
  const bool packed = problem.packed();
  const std::int32_t batch = packed ? 1 : args.batch;
  const std::int64_t rows = packed ? args.total_k : args.seqlen_k;
  FLASHDEPOT_TRY(
      launch_zeros({args.dk, batch, rows, args.heads_k, problem.head_dim_q}, stream));
  return launch_zeros({args.dv, batch, rows, args.heads_k, problem.head_dim_v}, stream);
}

std::size_t softmax_d_bytes(const Problem &problem) {
  return static_cast<std::size_t>(softmax_d_rows(problem) * problem.heads_q) * sizeof(float);
}

fa_status backward_without_keys(const BackwardCall &call, cudaStream_t stream) {
  const auto &[args, problem] = call;
  // Of no columns of anything: zeros, in the rows of sequences.
  const Wide dq = queries_of(problem, problem.head_dim_q);
  FLASHDEPOT_TRY(launch_widths({args.dq, args.dq, args.cu_seqlens_q, dq.batch, dq.rows, dq.heads, 0,
                                dq.from_dim, args.batch},
                               stream));
  if (args.softmax_d == nullptr) {
    return FA_STATUS_OK;
  }
  FLASHDEPOT_TRY(check_cuda(cudaMemsetAsync(args.softmax_d, 0, softmax_d_bytes(problem), stream),
                            "cudaMemsetAsync"));
  return args.d_lse == nullptr ? FA_STATUS_OK
                               : launch_subtract_d_lse(softmax_sums(call), stream);
}

// At the start of the workspace: copies of what is narrower than the kernels' head dim, of lse with
// the +inf that kernels know, and softmax_d for kernels that cannot do without.
struct Extra {
  Wide q, k, v, o, d_o, dq, dk, dv;
  std::uint64_t lse;
  std::int64_t lse_count;  // 0: no copy
  bool has_softmax_d;
  std::uint64_t softmax_d;
  std::uint64_t bytes;
};

Extra extra_of(const BackwardCall &call, const DeviceFacts &gpu, const Family &family) {
  const auto &[args, problem] = call;
  const Inside inside = family.backward.inside(call, gpu);
  const bool widens = !inside.head_dim_v;
  Extra extra{};
  const auto place = [&](const Wide &wide) {
    return place_wide(extra.bytes, wide, widens ? problem.head_dim : wide.from_dim);
  };
  extra.q = place(queries_of(problem, problem.head_dim_q));
  extra.dq = place(queries_of(problem, problem.head_dim_q));
  extra.k = place(keys_of(problem, problem.head_dim_q));
  extra.dk = place(keys_of(problem, problem.head_dim_q));
  extra.v = place(keys_of(problem, problem.head_dim_v));
  extra.dv = place(keys_of(problem, problem.head_dim_v));
  extra.o = place(queries_of(problem, problem.head_dim_v));
  extra.d_o = place(queries_of(problem, problem.head_dim_v));
  const auto floats = [&](std::uint64_t bytes) {
    constexpr std::uint64_t kAlignment = 256;
    const std::uint64_t start = extra.bytes;
    extra.bytes += round_up(bytes, kAlignment);
    return start;
  };
  if ((args.flags & FA_FLAG_EMPTY_LSE_NEG_INF) != 0) {
    const Wide rows = queries_of(problem, 0);
    extra.lse_count = rows.batch * rows.rows * rows.heads;
    extra.lse = floats(static_cast<std::uint64_t>(extra.lse_count) * sizeof(float));
  }
  extra.has_softmax_d = args.softmax_d == nullptr && !inside.softmax_d;
  if (extra.has_softmax_d) {
    extra.softmax_d = floats(softmax_d_bytes(problem));
  }
  return extra;
}

fa_status launch_with(const Extra &extra, const BackwardCall &call, const DeviceFacts &gpu,
                      const Family &family) {
  const fa_bwd_args &args = call.args;
  Workspace needs{0, 1};
  FLASHDEPOT_TRY(family.backward.workspace(call, needs));
  FLASHDEPOT_TRY(
      check_workspace(args.workspace_bytes, extra.bytes + needs.bytes, "fa_bwd_workspace"));
  BackwardCall inner = call;
  if (!family.backward.inside(call, gpu).head_dim_v) {
    inner.problem.head_dim_q = inner.problem.head_dim_v = call.problem.head_dim;
  }
  fa_bwd_args &in = inner.args;
  in.workspace = static_cast<char *>(args.workspace) + extra.bytes;
  in.workspace_bytes -= extra.bytes;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (extra.lse_count != 0) {
    auto *lse = reinterpret_cast<float *>(static_cast<char *>(args.workspace) + extra.lse);
    in.lse = lse;
    FLASHDEPOT_TRY(launch_positive_infinity(lse, args.lse, extra.lse_count, stream));
  }
  if (extra.has_softmax_d) {
    in.softmax_d = reinterpret_cast<float *>(static_cast<char *>(args.workspace) + extra.softmax_d);
  }
  FLASHDEPOT_TRY(widen(extra.q, args.q, args.workspace, in.q, stream));
  FLASHDEPOT_TRY(widen(extra.k, args.k, args.workspace, in.k, stream));
  FLASHDEPOT_TRY(widen(extra.v, args.v, args.workspace, in.v, stream));
  FLASHDEPOT_TRY(widen(extra.o, args.o, args.workspace, in.o, stream));
  FLASHDEPOT_TRY(widen(extra.d_o, args.d_o, args.workspace, in.d_o, stream));
  in.dq = wide_output(extra.dq, args.dq, args.workspace);
  in.dk = wide_output(extra.dk, args.dk, args.workspace);
  in.dv = wide_output(extra.dv, args.dv, args.workspace);
  FLASHDEPOT_TRY(family.backward.launch(inner, gpu));
  FLASHDEPOT_TRY(narrow(extra.dq, in.dq, args.dq, args.cu_seqlens_q, args.batch, stream));
  FLASHDEPOT_TRY(narrow(extra.dk, in.dk, args.dk, args.cu_seqlens_k, args.batch, stream));
  return narrow(extra.dv, in.dv, args.dv, args.cu_seqlens_k, args.batch, stream);
}

fa_status backward(const fa_bwd_args *args) {
  BackwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  const Problem &problem = call.problem;
  FLASHDEPOT_TRY(check_device(call.args.device));
  FLASHDEPOT_TRY(check_buffers(call.args, problem));
  Choice choice{};
  const bool nothing = problem.batch == 0 || (problem.no_queries() && problem.no_keys());
  if (nothing && call.args.d_sink == nullptr) {
    return choose(call, nullptr, choice);
  }

  cudaGetLastError();  // what is left over from others is theirs
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(call.args.device));
  return run(call, gpu, *choice.family);
}

fa_status backward_workspace(const fa_bwd_args *args, std::uint64_t *bytes) {
  BackwardCall call;
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
    FLASHDEPOT_TRY(choice.family->backward.workspace(call, needs));
    needs.bytes += extra_of(call, gpu, *choice.family).bytes;
  }
  *bytes = needs.bytes;
  return FA_STATUS_OK;
}

}  // namespace

SoftmaxSums softmax_sums(const BackwardCall &call) {
  const auto &[args, problem] = call;
  const bool packed = problem.packed();
  return {args.softmax_d,
          packed ? softmax_d_rows(problem) : padded_rows(args.seqlen_q),
          args.lse,
          args.d_lse,
          args.cu_seqlens_q,
          args.total_q,
          args.batch,
          args.heads_q,
          args.seqlen_q,
          static_cast<std::int32_t>(kRounding),
          1,
          problem.keep};
}

fa_status run(const BackwardCall &call, const DeviceFacts &gpu, const Family &family) {
  const auto &[args, problem] = call;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  const auto launch = [&] {
    const Extra extra = extra_of(call, gpu, family);
    return extra.bytes == 0 ? family.backward.launch(call, gpu)
                            : launch_with(extra, call, gpu, family);
  };
  if (problem.batch != 0 && !(problem.no_queries() && problem.no_keys())) {
    FLASHDEPOT_TRY(problem.no_queries() ? backward_without_queries(call, stream)
                   : problem.no_keys()  ? backward_without_keys(call, stream)
                                        : launch());
  }
  if (args.d_sink == nullptr) {
    return FA_STATUS_OK;
  }
  if (problem.no_queries()) {
    const std::size_t bytes = static_cast<std::size_t>(args.heads_q) * sizeof(float);
    return check_cuda(cudaMemsetAsync(args.d_sink, 0, bytes, stream), "cudaMemsetAsync");
  }
  return launch_d_sink(softmax_sums(call), args.sink, args.d_sink, stream);
}

}  // namespace flashdepot

fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) noexcept {
  return flashdepot::backward_workspace(args, bytes);
}

fa_status fa_bwd(const fa_bwd_args *args) noexcept { return flashdepot::backward(args); }
