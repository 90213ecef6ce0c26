// The forward pass by FlashAttention-4's kernels.
#include <algorithm>
#include <cstdint>

#include "error.h"
#include "fa4/passes.h"
#include "fa4/problem.h"
#include "fa4/speed.h"
#include "fa4/tensors.h"

namespace flashdepot::fa4 {
namespace {

// Kernels for sequences that use some of their keys take the rows of all as one list, in which each
// sequence's begin a number of rows after those of the one before it.
fa_tensor listed(const fa_tensor &keys, const Problem &problem) {
  const std::int64_t row_stride = stride_of(keys.row_stride, problem.seqlen_k);
  return fa_make_tensor(keys.data,
                        problem.batch > 1 ? keys.batch_stride : row_stride * problem.seqlen_k,
                        row_stride, keys.head_stride);
}

bool is_list(const fa_tensor &keys, const Problem &problem) {
  const fa_tensor list = listed(keys, problem);
  if (list.row_stride <= 0 || list.batch_stride % list.row_stride != 0) {
    return false;
  }
  const std::int64_t apart = list.batch_stride / list.row_stride;
  return apart >= problem.seqlen_k && apart * (std::int64_t{problem.batch} + 1) <= INT32_MAX;
}

Layout layout_of(const ForwardCall &call) {
  const auto &[args, problem] = call;
  if (problem.paged()) {
    return Layout::paged;
  }
  if (problem.packed()) {
    return Layout::packed;
  }
  return args.cache_seqlens != nullptr ? Layout::used : Layout::dense;
}

const char *obstacle_in(const ForwardCall &call) {
  const auto &[args, problem] = call;
  if (const char *obstacle = common_obstacle(problem)) return obstacle;
  if (args.seqlen_new != 0) return "k_new";
  if (args.cache_batch_idx != nullptr) return "cache_batch_idx";
  if (args.leftpad_k != nullptr) return "leftpad_k";
  if (args.num_splits > 1) return "num_splits above 1";
  if (problem.packed() && problem.paged()) return "block_table beside cu_seqlens_q";
  if (problem.packed() && args.seqused_k != nullptr) return "seqused_k";
  if (problem.paged() && args.cache_seqlens == nullptr) return "block_table without cache_seqlens";
  // Its copy of a page leaves the columns that the kernel has beyond the tensor's as they were in
  // shared memory, and what is not a number there makes the product with a zero of q not one either.
  if (problem.paged() && unit_head_dim(problem.head_dim) != problem.head_dim) {
    return "block_table at a head dim between those of its kernels";
  }
  if (layout_of(call) == Layout::used &&
      !(is_list(args.k, problem) && is_list(args.v, problem))) {
    return "cache_seqlens where sequences do not begin a whole number of rows apart";
  }
  return nullptr;
}

// Where each sequence has one query that sees every key, the query heads of a key head become rows
// of one tile: only strides change. 1: they do not.
std::int32_t group_of(const Problem &problem) {
  const bool decodes =
      problem.seqlen_q == 1 && !problem.packed() && problem.windows.unbounded();
  return decodes ? problem.heads_q / problem.heads_k : 1;
}

fa_tensor grouped(const fa_tensor &tensor, std::int32_t group) {
  return group == 1 ? tensor
                    : fa_make_tensor(tensor.data, tensor.batch_stride, tensor.head_stride,
                                     tensor.head_stride * group);
}

// By which a forward kernel is chosen among those for short and for long sequences.
std::int32_t length_of(const Problem &problem) {
  if (!problem.packed()) {
    return std::min(problem.seqlen_q, problem.seqlen_k);
  }
  const std::int64_t mean = problem.total_k / std::max(problem.batch, 1);
  return static_cast<std::int32_t>(mean);
}

const Unit *unit_for(const ForwardCall &call, const DeviceFacts *gpu) {
  const Problem &problem = call.problem;
  return find_unit(gpu, {Kernel::fwd, problem.dtype, unit_head_dim(problem.head_dim),
                         layout_of(call), mask_of(problem), problem.softcap > 0.0f, false, 0,
                         length_of(problem)});
}

fa_status run(const Unit &unit, const ForwardCall &call, std::int32_t blocks) {
  const auto &[args, problem] = call;
  const Layout layout = layout_of(call);
  const bool packed = problem.packed();
  auto stream = args.stream;

  const std::int32_t batch = problem.batch;
  const std::int32_t dim = problem.head_dim;
  const std::int32_t group = group_of(problem);
  const std::int32_t heads = problem.heads_q / group;
  const std::int32_t rows = problem.seqlen_q * group;
  const fa_tensor q = grouped(plain(args.q), group);
  const fa_tensor o = grouped(args.o, group);
  // A table may name any page of a pool whose size the caller does not tell; the kernels find pages
  // by number and do not count them.
  const std::int32_t page_size = problem.page_size;
  const std::int32_t pages_each =
      problem.paged() ? (problem.seqlen_k + page_size - 1) / page_size : 0;
  // One more, so that the stride between sequences means something for a single one too.
  const std::int64_t key_batch = problem.paged()           ? std::int64_t{batch} * pages_each + 1
                                 : layout == Layout::used ? std::int64_t{batch} + 1
                                                          : batch;
  const std::int64_t key_rows = problem.paged() ? page_size : problem.seqlen_k;

  Rows q_rows(packed, q, batch, packed ? problem.total_q : rows, heads, dim);
  Rows o_rows(packed, o, batch, packed ? problem.total_q : rows, heads, dim);
  const fa_tensor k = layout == Layout::used ? listed(args.k, problem) : args.k;
  const fa_tensor v = layout == Layout::used ? listed(args.v, problem) : args.v;
  Rows k_rows(packed, k, key_batch, packed ? problem.total_k : key_rows, problem.heads_k, dim);
  Rows v_rows(packed, v, key_batch, packed ? problem.total_k : key_rows, problem.heads_k, dim);
  Floats lse(packed, args.lse, batch, heads, packed ? problem.total_q : rows);

  Tensor<1> cu_seqlens_q = list(args.cu_seqlens_q, batch + 1);
  Tensor<1> cu_seqlens_k = list(args.cu_seqlens_k, batch + 1);
  Tensor<1> seqused_k = list(args.cache_seqlens, batch);
  Tensor<2> page_table{const_cast<std::int32_t *>(args.block_table),
                       {batch, pages_each},
                       {args.block_table_stride}};
  float scale = problem.scale;
  float softcap = problem.softcap;
  const bool local = mask_of(problem) == Mask::local;
  Windows windows = local_ends(problem);

  Arguments arguments;
  q_rows.add_to(arguments);
  k_rows.add_to(arguments);
  v_rows.add_to(arguments);
  o_rows.add_to(arguments);
  lse.add_to(arguments);
  arguments.add_if(packed, cu_seqlens_q).add_if(packed, cu_seqlens_k);
  arguments.add_if(layout == Layout::used || layout == Layout::paged, seqused_k);
  arguments.add_if(problem.paged(), page_table);
  arguments.add(scale);
  arguments.add_if(softcap > 0.0f, softcap);
  arguments.add_if(local, windows.left).add_if(local, windows.right);
  arguments.add_if(walks(unit), blocks);
  arguments.add(stream);
  return launch(unit, arguments);
}

}  // namespace

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why) {
  if (const char *obstacle = obstacle_in(call)) {
    return decline(why, Fit::unsupported, "it has no %s", obstacle);
  }
  const Unit *unit = unit_for(call, gpu);
  if (unit == nullptr) {
    return decline_unit(why, gpu, call.problem, "forward");
  }
  if (gpu != nullptr && !load(*unit, *gpu)) {
    return decline_load(why, *unit);
  }
  const char *reason = gpu == nullptr ? nullptr : drawback(call, *gpu);
  return reason == nullptr ? Fit::serves : decline(why, Fit::slower, "%s", reason);
}

fa_status workspace(const ForwardCall &, Workspace &needs) {
  needs = {0, 1};
  return FA_STATUS_OK;
}

fa_status launch(const ForwardCall &call, const DeviceFacts &gpu) {
  return run(*unit_for(call, &gpu), call, gpu.multiprocessors);
}

}  // namespace flashdepot::fa4
