// fa_fwd, fa_fwd_workspace and fa_supports.
#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "device.h"
#include "empty_keys.h"
#include "packed_lse.h"
#include "params.h"
#include "problem.h"
#include "splits.h"
#include "support.h"

namespace flashdepot {
namespace {

constexpr std::uint32_t kFlags =
    FA_CAUSAL | FA_WINDOW_LEFT | FA_WINDOW_RIGHT | FA_ROTARY_INTERLEAVED;

fa_fwd_args read_forward(const fa_fwd_args *args) { return read_args(args, "fa_fwd_args", kFlags); }

bool nothing_to_launch(const Problem &problem) {
  return problem.no_queries() || problem.no_keys();
}

// The number of splits for a caller that has a workspace, or asks how large it must be.
std::int32_t splits_of(const ForwardPlan &plan, const fa_fwd_args &args) {
  const Problem &problem = plan.problem;
  const bool splits_at_all = !problem.dropout() && !(problem.packed() && problem.group == 1);
  if (nothing_to_launch(problem) || !splits_at_all) {
    return 1;
  }
  if (args.num_splits != 0) {
    return args.num_splits;
  }
  if (plan.splitkv == nullptr) {
    return 1;
  }
  return choose_splits(problem, device_facts(args.device).multiprocessors);
}

SplitBuffers buffers_of(const ForwardPlan &plan, std::int32_t splits) {
  return nothing_to_launch(plan.problem) ? SplitBuffers{}
                                         : split_buffers(plan.problem, plan.unit_dim, splits);
}

// The queries of one key head become rows of one tile (flash_api.cpp 408-414, 595-599). In a packed
// batch, where upstream copies q and o to get there, each row becomes a batch of its own.
void swap_groups(ForwardParams &params, const Problem &problem, const fa_fwd_args &args) {
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

// What mha_fwd_kvcache adds (flash_api.cpp 1352-1436, 1446-1450).
void set_cache(ForwardParams &params, const fa_fwd_args &args) {
  params.cu_seqlens_k = const_cast<std::int32_t *>(args.cache_seqlens);
  params.is_seqlens_k_cumulative = args.cache_seqlens == nullptr;
  params.cache_batch_idx = const_cast<std::int32_t *>(args.cache_batch_idx);
  if (args.seqlen_new != 0) {
    params.seqlen_knew = args.seqlen_new;
    params.knew_ptr = args.k_new.data;
    params.vnew_ptr = args.v_new.data;
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
  params.is_rotary_interleaved = (args.flags & FA_ROTARY_INTERLEAVED) != 0;
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
  const Problem &problem = plan.problem;
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
void deliver_lse(const Problem &problem, const fa_fwd_args &args, const float *lse,
                 cudaStream_t stream) {
  if (problem.packed()) {
    launch_packed_lse({lse, args.lse, args.cu_seqlens_q, args.batch, args.heads_q, args.seqlen_q,
                       args.total_q},
                      stream);
  } else {
    const auto bytes = static_cast<std::size_t>(problem.rows()) * sizeof(float);
    C10_CUDA_CHECK(
        cudaMemcpyAsync(args.lse, lse, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

void launch(const ForwardPlan &plan, const fa_fwd_args &args, std::int32_t splits,
            const SplitBuffers &buffers, cudaStream_t stream) {
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
  if (buffers.has_lse) {
    deliver_lse(plan.problem, args, static_cast<const float *>(params.softmax_lse_ptr), stream);
  }
}

void launch_without_keys(const Problem &problem, const fa_fwd_args &args, cudaStream_t stream) {
  const bool packed = problem.packed();
  launch_empty_keys({args.o, args.lse, packed ? 1 : args.batch,
                     packed ? static_cast<std::int32_t>(args.total_q) : args.seqlen_q, args.heads_q,
                     args.head_dim},
                    stream);
}

void check_row_strides(const Problem &problem, const fa_fwd_args &args) {
  const std::int64_t rows = problem.paged()    ? problem.page_size
                            : problem.packed() ? problem.total_k
                                               : problem.seqlen_k;
  check_row_stride("k", args.k.row_stride, rows, "split-KV");
  check_row_stride("v", args.v.row_stride, rows, "split-KV");
  check_row_stride("k_new", args.k_new.row_stride, args.seqlen_new, "split-KV");
  check_row_stride("v_new", args.v_new.row_stride, args.seqlen_new, "split-KV");
}

void forward(const fa_fwd_args &args) {
  const Problem problem = read_problem(args);
  check_device(args.device);
  check_buffers(args, problem);
  const ForwardPlan plan = plan_forward(problem, args.num_splits);
  if (problem.no_queries()) {
    return;
  }

  cudaGetLastError();  // what is left over from others is theirs
  require_kernels_for(args.device);
  const bool automatic_without_memory = args.num_splits == 0 && args.workspace == nullptr;
  const std::int32_t splits = automatic_without_memory ? 1 : splits_of(plan, args);
  const SplitBuffers buffers = buffers_of(plan, splits);
  if (splits > 1 && args.workspace_bytes < buffers.bytes) {
    refuse(FA_WORKSPACE_TOO_SMALL,
           "workspace_bytes is %llu and %d splits need %llu; fa_fwd_workspace says so too, and "
           "num_splits 1 needs less",
           static_cast<unsigned long long>(args.workspace_bytes), splits,
           static_cast<unsigned long long>(buffers.bytes));
  }
  check_workspace(args.workspace_bytes, buffers.bytes, "fa_fwd_workspace");
  if (splits > 1 || problem.split_field != nullptr) {
    check_row_strides(problem, args);
  }

  const CurrentDevice current(args.device);
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.no_keys()) {
    launch_without_keys(problem, args, stream);
  } else {
    launch(plan, args, splits, buffers, stream);
  }
}

}  // namespace
}  // namespace flashdepot

fa_status fa_fwd(const fa_fwd_args *args) noexcept {
  using namespace flashdepot;
  return guarded([&] { forward(read_forward(args)); });
}

fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) noexcept {
  using namespace flashdepot;
  return guarded([&] {
    const fa_fwd_args known = read_forward(args);
    if (bytes == nullptr) {
      refuse(FA_INVALID, "bytes is NULL; pass the address of a uint64_t");
    }
    const Problem problem = read_problem(known);
    check_device(known.device);
    const ForwardPlan plan = plan_forward(problem, known.num_splits);
    const std::int32_t count = splits_of(plan, known);
    *bytes = buffers_of(plan, count).bytes;
    if (splits != nullptr) {
      *splits = count;
    }
  });
}

fa_status fa_supports(int32_t device, const fa_fwd_args *args) noexcept {
  using namespace flashdepot;
  return guarded([&] {
    const fa_fwd_args known = read_forward(args);
    const ForwardPlan plan = plan_forward(read_problem(known), known.num_splits);
    buffers_of(plan, known.num_splits);
    if (device != -1) {
      check_device(device);
      require_kernels_for(device);
    }
  });
}
