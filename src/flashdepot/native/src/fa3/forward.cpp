// The forward pass by FlashAttention-3's kernels.
#include <cuda_runtime_api.h>

#include "buffers.h"
#include "checks.h"
#include "divide.h"
#include "error.h"
#include "fa3/passes.h"
#include "fa3/plan.h"
#include "host/fa3/launching.h"
#include "lengths.h"
#include "softmax_rows.h"

namespace flashdepot::fa3 {
namespace {

// Pages, and sequences of a cache, of which a call does not say how many there are: the kernels find
// one by its number, and hold none that is named for missing.
constexpr std::int32_t kMany = 1 << 24;

void *address(const void *data) { return const_cast<void *>(data); }
std::int32_t *address(const std::int32_t *data) { return const_cast<std::int32_t *>(data); }
float *address(const float *data) { return const_cast<float *>(data); }

// A tensor map is made of every stride, also of one that nobody looks at.
std::int64_t stride_of(std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride : 0; }

// As set_params_fprop and mha_fwd of hopper/flash_api.cpp fill it.
Params shape_params(const ForwardCall &call, const ForwardPlan &plan, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  Params params{};
  params.is_bf16 = problem.dtype == FA_DTYPE_BF16;
  params.is_e4m3 = problem.dtype == FA_DTYPE_E4M3;
  params.b = problem.batch;
  params.h = problem.heads_q;
  params.h_k = problem.heads_k;
  params.seqlen_q = problem.seqlen_q;
  params.seqlen_k = problem.seqlen_k;
  params.d = problem.head_dim_q;
  params.dv = problem.head_dim_v;
  params.d_rounded = plan.dims.q;
  params.dv_rounded = plan.dims.v;
  params.total_q = static_cast<int>(
      problem.packed() ? problem.total_q : std::int64_t{problem.batch} * problem.seqlen_q);
  params.total_k = static_cast<int>(problem.total_k);
  params.b_k = args.cache_batch_idx != nullptr ? kMany : problem.batch;
  params.scale_softmax = problem.scale;
  params.p_dropout = 1.0f;
  params.rp_dropout = 1.0f;

  params.is_causal = plan.causal;
  params.is_local = plan.local;
  const Windows &windows = problem.windows;
  params.window_size_left = windows.left < 0 ? problem.seqlen_k - 1 : windows.left;
  params.window_size_right = windows.right < 0 ? problem.seqlen_q - 1 : windows.right;
  if (const std::int32_t chunk = args.attention_chunk; chunk > 0) {
    params.window_size_left = params.window_size_left < chunk ? params.window_size_left : chunk - 1;
    params.window_size_right =
        params.window_size_right < chunk ? params.window_size_right : chunk - 1;
    params.attention_chunk = chunk;
  }

  params.num_splits = plan.splits;
  params.pack_gqa = plan.splits > 1 || plan.by_rows;
  params.arch = 90;
  params.num_sm = gpu.multiprocessors;
  return params;
}

void set_tensors(Params &params, const ForwardCall &call) {
  const auto &[args, problem] = call;
  const bool packed = problem.packed();
  const std::int64_t q_rows = packed ? problem.total_q : problem.seqlen_q;
  params.q_ptr = address(args.q.data);
  params.q_row_stride = stride_of(args.q.row_stride, q_rows);
  params.q_head_stride = stride_of(args.q.head_stride, problem.heads_q);
  params.q_batch_stride = packed ? 0 : stride_of(args.q.batch_stride, problem.batch);
  params.o_ptr = args.o.data;
  params.o_row_stride = stride_of(args.o.row_stride, q_rows);
  params.o_head_stride = stride_of(args.o.head_stride, problem.heads_q);
  params.o_batch_stride = packed ? 0 : stride_of(args.o.batch_stride, problem.batch);
  if (args.qv.data != nullptr) {
    params.qv_ptr = address(args.qv.data);
    params.qv_row_stride = stride_of(args.qv.row_stride, q_rows);
    params.qv_head_stride = stride_of(args.qv.head_stride, problem.heads_q);
    params.qv_batch_stride = packed ? 0 : stride_of(args.qv.batch_stride, problem.batch);
  }

  const bool list = packed && !problem.paged();
  const std::int64_t k_rows = problem.paged() ? problem.page_size
                              : list          ? problem.total_k
                                              : problem.seqlen_k;
  const std::int64_t k_batch = problem.paged() ? kMany : list ? 1 : params.b_k;
  params.k_ptr = args.k.data;
  params.k_row_stride = stride_of(args.k.row_stride, k_rows);
  params.k_head_stride = stride_of(args.k.head_stride, problem.heads_k);
  params.k_batch_stride = stride_of(args.k.batch_stride, k_batch);
  params.v_ptr = args.v.data;
  params.v_row_stride = stride_of(args.v.row_stride, k_rows);
  params.v_head_stride = stride_of(args.v.head_stride, problem.heads_k);
  params.v_batch_stride = stride_of(args.v.batch_stride, k_batch);
  params.v_dim_stride = 1;
  if (args.seqlen_new != 0) {
    params.seqlen_knew = args.seqlen_new;
    params.total_knew = args.seqlen_new * problem.batch;
    params.knew_ptr = address(args.k_new.data);
    params.knew_row_stride = stride_of(args.k_new.row_stride, args.seqlen_new);
    params.knew_head_stride = stride_of(args.k_new.head_stride, problem.heads_k);
    params.knew_batch_stride = stride_of(args.k_new.batch_stride, problem.batch);
    params.vnew_ptr = address(args.v_new.data);
    params.vnew_row_stride = stride_of(args.v_new.row_stride, args.seqlen_new);
    params.vnew_head_stride = stride_of(args.v_new.head_stride, problem.heads_k);
    params.vnew_batch_stride = stride_of(args.v_new.batch_stride, problem.batch);
  }
  params.softmax_lse_ptr = args.lse;
}

void set_lists(Params &params, const ForwardCall &call, const ForwardPlan &plan,
               const Buffers &buffers) {
  const auto &[args, problem] = call;
  auto *workspace = static_cast<char *>(args.workspace);
  params.cu_seqlens_q = address(args.cu_seqlens_q);
  params.cu_seqlens_k = problem.paged() ? nullptr : address(args.cu_seqlens_k);
  params.seqused_q = address(args.seqused_q);
  params.seqused_k = buffers.has_lengths
                         ? reinterpret_cast<std::int32_t *>(workspace + buffers.lengths)
                         : address(problem.packed() ? args.seqused_k : args.cache_seqlens);
  params.leftpad_k = address(args.leftpad_k);
  params.kv_batch_idx = address(args.cache_batch_idx);
  params.page_size = 1;
  if (problem.paged()) {
    params.page_table = address(args.block_table);
    params.page_table_batch_stride = args.block_table_stride;
    params.page_size = problem.page_size;
    params.num_pages = kMany;
    params.pagedkv_tma = plan.whole_pages;
    // The capacity of a sequence is whole pages.
    const std::int32_t pages = divide_up(problem.seqlen_k, problem.page_size);
    params.seqlen_k = pages * problem.page_size;
  }
  params.q_descale_ptr = address(args.q_descale);
  params.k_descale_ptr = address(args.k_descale);
  params.v_descale_ptr = address(args.v_descale);
  params.q_descale_batch_stride = params.k_descale_batch_stride = params.v_descale_batch_stride =
      args.descale_batch_stride;
  params.q_descale_head_stride = params.k_descale_head_stride = params.v_descale_head_stride =
      args.descale_head_stride;

  params.varlen_sort_batches = !plan.local;
  params.head_swizzle = plan.causal || plan.local;
  if (plan.varlen) {
    constexpr std::int32_t kMostOfOneBlock = 992;  // PREPARE_VARLEN_MAX_BATCHES_1CTA
    params.prepare_varlen_pdl = problem.batch <= kMostOfOneBlock;
    auto *list = reinterpret_cast<std::int32_t *>(workspace + buffers.lists);
    const std::int64_t length = list_length(problem.batch);
    params.num_splits_dynamic_ptr = list;
    params.num_m_blocks_ptr = list + length;
    params.varlen_batch_idx_ptr = params.varlen_sort_batches ? list + 2 * length : nullptr;
    params.num_nheads_in_l2_ptr = params.head_swizzle ? list + 3 * length : nullptr;
  }
  if (buffers.has_counter) {
    params.tile_count_semaphore = reinterpret_cast<std::int32_t *>(workspace + buffers.counter);
  }
}

void set_parts(Params &params, const ForwardCall &call, const Buffers &buffers) {
  const auto &[args, problem] = call;
  auto *workspace = static_cast<char *>(args.workspace);
  const std::int64_t rows = problem.packed() ? problem.total_q : problem.seqlen_q;
  const std::int64_t all = rows * problem.heads_q * (problem.packed() ? 1 : problem.batch);
  params.softmax_lseaccum_ptr = workspace + buffers.lse_parts;
  params.lseaccum_head_stride = rows;
  params.lseaccum_batch_stride = problem.packed() ? 0 : rows * problem.heads_q;
  params.lseaccum_split_stride = all;
  params.oaccum_ptr = workspace + buffers.o_parts;
  params.oaccum_row_stride = problem.head_dim_v;
  params.oaccum_head_stride = rows * problem.head_dim_v;
  params.oaccum_batch_stride = params.lseaccum_batch_stride * problem.head_dim_v;
  params.oaccum_split_stride = all * problem.head_dim_v;
}

fa_status check_launch() {
  const Failure failure = take_failure();
  return failure.call == nullptr ? FA_STATUS_OK : check_cuda(failure.code, failure.call);
}

// Whether some row may see no key, whose lse the kernels write as -inf.
bool may_be_empty(const ForwardCall &call, const ForwardPlan &plan) {
  const Problem &problem = call.problem;
  return plan.varlen || plan.local || (plan.causal && problem.seqlen_q > problem.seqlen_k);
}

Fit fits_gpu(const DeviceFacts *gpu, Text *why) {
  if (gpu == nullptr || (gpu->major == 9 && gpu->minor == 0)) {
    return Fit::serves;
  }
  return decline(why, Fit::no_kernel_for_arch, "no kernel for compute capability %d.%d", gpu->major,
                 gpu->minor);
}

}  // namespace

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why) {
  const auto &[args, problem] = call;
  if (const Fit fit = fits_words(call, why); fit != Fit::serves) {
    return fit;
  }
  const ForwardPlan plan = plan_forward(call, gpu == nullptr ? 1 : gpu->multiprocessors);
  if (launch_of(call, plan) == nullptr) {
    return decline(why, Fit::unsupported,
                   "the kernel for head dims %d and %d, %s%s%s is not in this library", plan.dims.q,
                   plan.dims.v, problem.dtype == FA_DTYPE_E4M3 ? "e4m3" : "bf16",
                   plan.splits > 1 ? ", split keys" : "", plan.by_rows ? ", pages" : "");
  }
  if (plan.local && !has_feature(FA_FEATURE_LOCAL)) {
    return decline(why, Fit::unsupported, "this library was built without local");
  }
  const bool uneven = problem.head_dim_q != plan.dims.q || problem.head_dim_v != plan.dims.v;
  if (uneven && !has_feature(FA_FEATURE_UNEVEN_K)) {
    return decline(why, Fit::unsupported, "this library was built without uneven_k");
  }
  return fits_gpu(gpu, why);
}

Inside inside(const ForwardCall &, const DeviceFacts &) { return {false, true}; }

fa_status workspace(const ForwardCall &call, Workspace &needs) {
  DeviceFacts gpu;
  FLASHDEPOT_TRY(read_device(call.args.device, gpu));
  const ForwardPlan plan = plan_forward(call, gpu.multiprocessors);
  needs = {buffers_of(call, plan).bytes, plan.splits > 1 ? plan.splits : 1};
  return FA_STATUS_OK;
}

fa_status launch(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  ForwardPlan plan = plan_forward(call, gpu.multiprocessors);
  plan.splits = plan.splits > 1 ? plan.splits : 1;
  const Buffers buffers = buffers_of(call, plan);
  FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, buffers.bytes, "fa_fwd_workspace"));
  auto *workspace = static_cast<char *>(args.workspace);
  if (buffers.has_lengths) {
    FLASHDEPOT_TRY(launch_lengths({reinterpret_cast<std::int32_t *>(workspace + buffers.lengths),
                                   args.cu_seqlens_k, problem.seqlen_k, problem.batch},
                                  stream));
  }
  if (buffers.has_counter && !plan.varlen) {  // else the kernel that makes the lists clears it
    FLASHDEPOT_TRY_CUDA(
        cudaMemsetAsync(workspace + buffers.counter, 0, sizeof(std::int32_t), stream));
  }
  Params params = shape_params(call, plan, gpu);
  set_tensors(params, call);
  set_lists(params, call, plan, buffers);
  if (plan.splits > 1) {
    set_parts(params, call, buffers);
  }
  launch_of(call, plan)(params, stream);
  FLASHDEPOT_TRY(check_launch());
  if (plan.splits > 1) {
    find_combine(problem.head_dim_v)(params, stream);
    FLASHDEPOT_TRY(check_launch());
  }
  if (!may_be_empty(call, plan)) {
    return FA_STATUS_OK;
  }
  const std::int64_t rows =
      problem.packed() ? problem.total_q : std::int64_t{problem.batch} * problem.seqlen_q;
  return launch_positive_infinity(args.lse, args.lse, rows * problem.heads_q, stream);
}

}  // namespace flashdepot::fa3
