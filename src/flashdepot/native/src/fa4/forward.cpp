// The forward pass by FlashAttention-4's kernels.
#include <algorithm>
#include <cstdint>

#include "buffers.h"
#include "divide.h"
#include "error.h"
#include "fa4/decoding.h"
#include "fa4/parts.h"
#include "fa4/passes.h"
#include "fa4/problem.h"
#include "fa4/speed.h"
#include "fa4/tensors.h"
#include "lengths.h"

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
    return problem.packed() ? Layout::paged_packed : Layout::paged;
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
  if (problem.packed() && !problem.paged() && args.seqused_k != nullptr) return "seqused_k";
  if (layout_of(call) == Layout::used &&
      !(is_list(args.k, problem) && is_list(args.v, problem))) {
    return "cache_seqlens where sequences do not begin a whole number of rows apart";
  }
  return nullptr;
}

// Where each sequence has one query that sees every key, the query heads of a key head become rows
// of one tile: only strides change. 1: they do not.
std::int32_t group_of(const ForwardCall &call) {
  const Problem &problem = call.problem;
  // A sink is that of a query head.
  const bool decodes = problem.seqlen_q == 1 && !problem.packed() && problem.windows.unbounded() &&
                       call.args.sink == nullptr;
  return decodes ? problem.heads_q / problem.heads_k : 1;
}

fa_tensor grouped(const fa_tensor &tensor, std::int32_t group) {
  return group == 1 ? tensor
                    : fa_make_tensor(tensor.data, tensor.batch_stride, tensor.head_stride,
                                     tensor.head_stride * group);
}

std::int64_t keys_of(const Problem &problem) {
  return problem.packed() && !problem.paged() ? problem.total_k / std::max(problem.batch, 1) : problem.seqlen_k;
}

// By which a forward kernel is chosen among those for short and for long sequences.
std::int32_t length_of(const Problem &problem) {
  if (!problem.packed()) {
    return std::min(problem.seqlen_q, problem.seqlen_k);
  }
  if (problem.paged()) {
    return problem.seqlen_k;
  }
  const auto mean = static_cast<std::int32_t>(keys_of(problem));
  // By a causal mask those for long ones suit unequal sequences: they are faster for equal ones from twice as many keys on.
  return mask_of(problem) == Mask::causal ? std::min(mean, problem.seqlen_k / 2) : mean;
}

// By which the tiles of query rows are chosen. One query each is what parts.cpp has figures for.
std::int64_t queries_of(const Problem &problem) {
  if (problem.seqlen_q == 1) {
    return 0;
  }
  return problem.packed() ? problem.total_q / std::max(problem.batch, 1) : problem.seqlen_q;
}

// How many query heads of a key head may be rows of one tile: one where the GPU has SMs to spare for more tiles.
std::int32_t heads_together(const Problem &problem, const DeviceFacts *gpu) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t tiles = divide_up(queries_of(problem), kRows) * problem.batch * problem.heads_q;
  return gpu != nullptr && tiles < gpu->multiprocessors ? 1 : problem.heads_q / problem.heads_k;
}

const Unit *unit_for(const ForwardCall &call, const DeviceFacts *gpu) {
  const Problem &problem = call.problem;
  const Key key{Kernel::fwd, problem.dtype, unit_head_dim(problem.head_dim), problem.head_dim_v, layout_of(call),
                mask_of(problem), problem.softcap > 0.0f, false, 0, length_of(problem), queries_of(problem),
                heads_together(problem, gpu), std::int64_t{problem.batch} * problem.heads_q, keys_of(problem)};
  return find_unit(gpu, key);
}

// Kernels over pages take a list of lengths, which a caller may have in another form.
bool has_lengths(const fa_fwd_args &args) {
  return (args.cu_seqlens_q != nullptr ? args.seqused_k : args.cache_seqlens) != nullptr;
}

const std::int32_t *lengths_of(const fa_fwd_args &args) {
  const std::int32_t *given = args.cu_seqlens_q != nullptr ? args.seqused_k : args.cache_seqlens;
  return given != nullptr ? given : static_cast<const std::int32_t *>(args.workspace);
}

std::uint64_t workspace_of(const ForwardCall &call) {
  const bool makes_lengths = call.problem.paged() && !has_lengths(call.args);
  return makes_lengths ? static_cast<std::uint64_t>(call.problem.batch) * sizeof(std::int32_t) : 0;
}

fa_status run(const Unit &unit, const ForwardCall &call, std::int32_t multiprocessors) {
  const auto &[args, problem] = call;
  const Layout layout = layout_of(call);
  const bool packed = problem.packed();
  auto stream = args.stream;

  const std::int32_t batch = problem.batch;
  const std::int32_t dim_q = problem.head_dim_q;
  const std::int32_t dim_v = problem.head_dim_v;
  const std::int32_t group = group_of(call);
  const std::int32_t heads = problem.heads_q / group;
  const std::int32_t rows = problem.seqlen_q * group;
  const fa_tensor q = grouped(plain(args.q), group);
  const fa_tensor o = grouped(args.o, group);
  // A table may name any page of a pool whose size the caller does not tell; the kernels find pages
  // by number and do not count them.
  const std::int32_t page_size = problem.page_size;
  const std::int32_t pages_each =
      problem.paged() ? divide_up(problem.seqlen_k, page_size) : 0;
  // One more, so that the stride between sequences means something for a single one too.
  const std::int64_t key_batch = problem.paged()           ? std::int64_t{batch} * pages_each + 1
                                 : layout == Layout::used ? std::int64_t{batch} + 1
                                                          : batch;
  const std::int64_t key_rows = problem.paged() ? page_size : problem.seqlen_k;

  Rows q_rows(packed, q, batch, packed ? problem.total_q : rows, heads, dim_q);
  Rows o_rows(packed, o, batch, packed ? problem.total_q : rows, heads, dim_v);
  const fa_tensor k = layout == Layout::used ? listed(args.k, problem) : args.k;
  const fa_tensor v = layout == Layout::used ? listed(args.v, problem) : args.v;
  const bool packed_keys = layout == Layout::packed;
  const std::int64_t all_key_rows = packed_keys ? problem.total_k : key_rows;
  Rows k_rows(packed_keys, k, key_batch, all_key_rows, problem.heads_k, dim_q);
  Rows v_rows(packed_keys, v, key_batch, all_key_rows, problem.heads_k, dim_v);
  Floats lse(packed, args.lse, batch, heads, packed ? problem.total_q : rows);

  Tensor<1> cu_seqlens_q = list(args.cu_seqlens_q, batch + 1);
  Tensor<1> cu_seqlens_k = list(args.cu_seqlens_k, batch + 1);
  Tensor<1> seqused_k = list(problem.paged() ? lengths_of(args) : args.cache_seqlens, batch);
  Tensor<2> page_table{const_cast<std::int32_t *>(args.block_table),
                       {batch, pages_each},
                       {args.block_table_stride}};
  Tensor<1> sink{const_cast<float *>(args.sink),
                 {args.sink != nullptr ? problem.heads_q : 0}};
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
  arguments.add_if(packed, cu_seqlens_q).add_if(packed_keys, cu_seqlens_k);
  arguments.add_if(layout == Layout::used || problem.paged(), seqused_k);
  arguments.add_if(problem.paged(), page_table);
  arguments.add_if(has_todays_words(unit), sink);
  arguments.add(scale);
  arguments.add_if(softcap > 0.0f, softcap);
  arguments.add_if(local, windows.left).add_if(local, windows.right);
  std::int32_t blocks = multiprocessors * blocks_of(unit);
  arguments.add_if(blocks > 0, blocks);
  arguments.add(stream);
  return launch(unit, arguments);
}

// One query each, at head dims over 64, may be faster by the tiles of many (benchmarks/fa4.md).
bool is_faster_by_unit(const ForwardCall &call, const DeviceFacts *gpu) {
  return gpu != nullptr && way_of(call, *gpu).by_unit && unit_for(call, gpu) != nullptr;
}

// Without queries that are few, those kernels run what no other here does.
bool decodes(const ForwardCall &call, const DeviceFacts *gpu) {
  if (!can_decode(call, gpu)) {
    return false;
  }
  return obstacle_in(call) != nullptr || (has_few_queries(call.problem) && !is_faster_by_unit(call, gpu));
}

}  // namespace

Fit fits(const ForwardCall &call, const DeviceFacts *gpu, Text *why) {
  const bool by_decoding = decodes(call, gpu);
  if (!by_decoding) {
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
  }
  const char *reason = gpu == nullptr ? nullptr
                       : by_decoding  ? drawback_of_decoding(call.problem, *gpu)
                                      : drawback(call, *gpu);
  return reason == nullptr ? Fit::serves : decline(why, Fit::slower, "%s", reason);
}

Inside inside(const ForwardCall &call, const DeviceFacts &gpu) {
  const bool does = !decodes(call, &gpu) && has_todays_words(*unit_for(call, &gpu));
  return {does, does};
}

fa_status workspace(const ForwardCall &call, Workspace &needs) {
  DeviceFacts gpu;
  FLASHDEPOT_TRY(read_device(call.args.device, gpu));
  needs = decodes(call, &gpu) ? decoding_workspace(call, gpu) : Workspace{workspace_of(call), 1};
  return FA_STATUS_OK;
}

fa_status launch(const ForwardCall &call, const DeviceFacts &gpu) {
  if (decodes(call, &gpu)) {
    return decode(call, gpu);
  }
  const fa_fwd_args &args = call.args;
  if (const std::uint64_t bytes = workspace_of(call); bytes != 0) {
    FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, bytes, "fa_fwd_workspace"));
    FLASHDEPOT_TRY(launch_lengths({static_cast<std::int32_t *>(args.workspace), args.cu_seqlens_k,
                                   call.problem.seqlen_k, call.problem.batch},
                                  static_cast<cudaStream_t>(args.stream)));
  }
  return run(*unit_for(call, &gpu), call, gpu.multiprocessors);
}

}  // namespace flashdepot::fa4
