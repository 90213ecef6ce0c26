// fa_bwd and fa_bwd_workspace.
#include <algorithm>
#include <cstdio>

#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "device.h"
#include "fa2_config.h"
#include "gradients.h"
#include "params.h"
#include "problem.h"
#include "support.h"

namespace flashdepot {
namespace {

constexpr std::uint32_t kFlags = FA_CAUSAL | FA_WINDOW_LEFT | FA_WINDOW_RIGHT | FA_DETERMINISTIC;

fa_bwd_args read_backward(const fa_bwd_args *args) {
  return read_args(args, "fa_bwd_args", kFlags);
}

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

bool shares_keys(const Problem &problem) {
  return problem.heads_q != problem.heads_k;
}

// Rows of dq_accum and softmax_d. Blocks of rows reach past the end of a sequence: a packed batch
// has a block between each two (flash_api.cpp 1103-1112).
std::int64_t padded_rows(const Problem &problem) {
  return problem.packed() ? problem.total_q + kRounding * problem.batch
                          : problem.batch * round_up(problem.seqlen_q);
}

std::int64_t key_rows(const Problem &problem) {
  return problem.packed() ? problem.total_k : std::int64_t{problem.batch} * problem.seqlen_k;
}

// Before 2.8.3.post2, for all that is known, the kernels find their place in dq_accum with 32 bits.
bool indexes_dq_with_64_bits() {
  int version[4] = {};
  std::sscanf(FA2_CONFIG_UPSTREAM, "%d.%d.%d.post%d", &version[0], &version[1], &version[2],
              &version[3]);
  const int needed[4] = {2, 8, 3, 2};
  return !std::lexicographical_compare(version, version + 4, needed, needed + 4);
}

BackwardBuffers buffers_of(const BackwardPlan &plan, std::int32_t device) {
  const Problem &problem = plan.problem;
  if (problem.no_queries() || problem.no_keys()) {
    return {};
  }
  BackwardBuffers buffers{};
  buffers.part = padded_rows(problem) * problem.heads_q * plan.unit_dim;
  if (buffers.part > INT32_MAX && !indexes_dq_with_64_bits()) {
    refuse(FA_UNSUPPORTED,
           "the float dq of this problem has %lld elements (rows, padded, x heads_q x %d), and the "
           "kernels of flash-attention %s index it with 32 bits: split the batch, or build from "
           "2.8.3.post2",
           static_cast<long long>(buffers.part), plan.unit_dim, FA2_CONFIG_UPSTREAM);
  }
  buffers.parts = 1;
  if (problem.deterministic) {
    // Each block of a batch and head adds to a dq of its own (flash_bwd_launch_template.h 77-80).
    const std::int32_t heads = problem.batch * problem.heads_q;
    buffers.parts = (device_facts(device).multiprocessors + heads - 1) / heads;
  }
  buffers.dk = buffers.dq_accum_bytes();
  const auto expanded = static_cast<std::uint64_t>(
      shares_keys(problem) ? key_rows(problem) * problem.heads_q * problem.head_dim * 2 : 0);
  buffers.dv = buffers.dk + expanded;
  buffers.bytes = buffers.dv + expanded;
  return buffers;
}

// What set_params_dgrad adds (flash_api.cpp 201-240).
BackwardParams make_params(const BackwardPlan &plan, const fa_bwd_args &args,
                           const BackwardBuffers &buffers) {
  const Problem &problem = plan.problem;
  auto *workspace = static_cast<char *>(args.workspace);
  BackwardParams params{};
  static_cast<ForwardParams &>(params) = shape_params(problem, plan.unit_dim);
  set_tensors(params, problem, args);

  fa_tensor dk = args.dk;
  fa_tensor dv = args.dv;
  if (shares_keys(problem)) {
    const std::int64_t row = std::int64_t{problem.heads_q} * problem.head_dim;
    dk = {workspace + buffers.dk, row * problem.seqlen_k, row, problem.head_dim};
    dv = {workspace + buffers.dv, row * problem.seqlen_k, row, problem.head_dim};
  }
  params.do_ptr = args.d_o.data;
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

Gradient query_gradient(const Problem &problem, const fa_tensor &tensor) {
  return problem.packed() ? Gradient{tensor, 1, problem.total_q, problem.heads_q, problem.head_dim}
                          : Gradient{tensor, problem.batch, problem.seqlen_q, problem.heads_q,
                                     problem.head_dim};
}

Gradient key_gradient(const Problem &problem, const fa_tensor &tensor) {
  return problem.packed() ? Gradient{tensor, 1, problem.total_k, problem.heads_k, problem.head_dim}
                          : Gradient{tensor, problem.batch, problem.seqlen_k, problem.heads_k,
                                     problem.head_dim};
}

void launch_without_queries(const Problem &problem, const fa_bwd_args &args, cudaStream_t stream) {
  launch_zeros(key_gradient(problem, args.dk), stream);
  launch_zeros(key_gradient(problem, args.dv), stream);
}

// Here upstream launches a grid of no blocks, which is an error.
void launch_without_keys(const Problem &problem, const fa_bwd_args &args, cudaStream_t stream) {
  launch_zeros(query_gradient(problem, args.dq), stream);
  const auto floats = static_cast<std::size_t>(padded_rows(problem) * problem.heads_q);
  C10_CUDA_CHECK(cudaMemsetAsync(args.softmax_d, 0, floats * sizeof(float), stream));
}

void launch(const BackwardPlan &plan, const fa_bwd_args &args, const BackwardBuffers &buffers,
            cudaStream_t stream) {
  const Problem &problem = plan.problem;
  BackwardParams params = make_params(plan, args, buffers);
  if (problem.deterministic) {
    // Else the kernels clear what they are going to add to.
    C10_CUDA_CHECK(cudaMemsetAsync(args.workspace, 0, buffers.dq_accum_bytes(), stream));
  }
  plan.backward(params, stream);
  if (shares_keys(problem)) {
    const std::int32_t group = problem.heads_q / problem.heads_k;
    launch_group_sum(key_gradient(problem, args.dk), params.dk_ptr, group, problem.dtype, stream);
    launch_group_sum(key_gradient(problem, args.dv), params.dv_ptr, group, problem.dtype, stream);
  }
}

// The kernels for head dim 256 return without doing anything where they need more shared memory
// with dropout than the GPU has (flash_bwd_launch_template.h 309-317).
void check_shared_memory(const BackwardPlan &plan, std::int32_t device) {
  constexpr std::int32_t kNeeded = 144;
  const DeviceFacts facts = device_facts(device);
  if (plan.unit_dim > 192 && plan.problem.dropout() && facts.shared_kilobytes < kNeeded) {
    refuse(FA_UNSUPPORTED,
           "dropout is %g and head_dim is %d; its backward kernels need %d KB of shared memory and "
           "device %d (compute capability %d.%d) has %d: use a head_dim up to 192 or no dropout",
           static_cast<double>(1.0f - plan.problem.keep), plan.problem.head_dim, kNeeded, device,
           facts.major, facts.minor, facts.shared_kilobytes);
  }
}

void check_row_strides(const Problem &problem, const fa_bwd_args &args) {
  const std::int64_t rows = problem.packed() ? problem.total_q : problem.seqlen_q;
  check_row_stride("q", args.q.row_stride, rows, "backward");
  check_row_stride("o", args.o.row_stride, rows, "backward");
  check_row_stride("d_o", args.d_o.row_stride, rows, "backward");
  check_row_stride("dq", args.dq.row_stride, rows, "backward");
}

void backward(const fa_bwd_args &args) {
  const Problem problem = read_problem(args);
  check_device(args.device);
  check_buffers(args, problem);
  const BackwardPlan plan = plan_backward(problem);
  if (problem.batch == 0 || (problem.no_queries() && problem.no_keys())) {
    return;
  }

  cudaGetLastError();  // what is left over from others is theirs
  require_kernels_for(args.device);
  check_shared_memory(plan, args.device);
  const BackwardBuffers buffers = buffers_of(plan, args.device);
  check_workspace(args.workspace_bytes, buffers.bytes, "fa_bwd_workspace");
  check_row_strides(problem, args);

  const CurrentDevice current(args.device);
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.no_queries()) {
    launch_without_queries(problem, args, stream);
  } else if (problem.no_keys()) {
    launch_without_keys(problem, args, stream);
  } else {
    launch(plan, args, buffers, stream);
  }
}

}  // namespace
}  // namespace flashdepot

fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) noexcept {
  using namespace flashdepot;
  return guarded([&] {
    const fa_bwd_args known = read_backward(args);
    if (bytes == nullptr) {
      refuse(FA_INVALID, "bytes is NULL; pass the address of a uint64_t");
    }
    const Problem problem = read_problem(known);
    check_device(known.device);
    *bytes = buffers_of(plan_backward(problem), known.device).bytes;
  });
}

fa_status fa_bwd(const fa_bwd_args *args) noexcept {
  using namespace flashdepot;
  return guarded([&] { backward(read_backward(args)); });
}
