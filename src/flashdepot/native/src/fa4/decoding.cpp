#include "fa4/decoding.h"

#include "buffers.h"
#include "error.h"
#include "fa4/decode.h"
#include "fa4/parts.h"
#include "fa4/units.h"

namespace flashdepot::fa4 {
namespace {

constexpr std::int32_t kGridLimit = 65535;  // of blocks in y (CUDA C++ Programming Guide)

std::int64_t rows_of(const Problem &problem) {
  return std::int64_t{problem.seqlen_q} * (problem.heads_q / problem.heads_k);
}

// Blocks without parts: each has all keys of a key head for a tile of rows.
std::int64_t tiles_of(const Problem &problem) {
  const std::int32_t rows = most_rows(problem.head_dim);
  return problem.heads_k * ((rows_of(problem) + rows - 1) / rows);
}

std::int64_t rows_of_lse(const Problem &problem) {
  return problem.heads_q *
         (problem.packed() ? problem.total_q : std::int64_t{problem.batch} * problem.seqlen_q);
}

Place place_of(const fa_const_tensor &tensor) {
  return {const_cast<void *>(tensor.data), tensor.batch_stride, tensor.row_stride, tensor.head_stride};
}
Place place_of(const fa_tensor &tensor) {
  return {tensor.data, tensor.batch_stride, tensor.row_stride, tensor.head_stride};
}

}  // namespace

bool can_decode(const ForwardCall &call, const DeviceFacts *gpu) {
  const Problem &problem = call.problem;
  const bool has_code = gpu == nullptr || (gpu->major >= 9 && has_units_for(*gpu));
  return has_code && !problem.dropout() && !problem.alibi && call.args.sink == nullptr &&
         problem.head_dim_q == problem.head_dim_v && tiles_of(problem) <= kGridLimit;
}

bool has_few_queries(const Problem &problem) {
  return problem.seqlen_q == 1 || rows_of(problem) <= most_rows(problem.head_dim);
}

Workspace decoding_workspace(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto [count, in_cluster] = parts_of(call, gpu);
  const std::uint64_t of_part = static_cast<std::uint64_t>(rows_of_lse(call.problem)) *
                                (static_cast<std::uint64_t>(call.problem.head_dim) + 1) * sizeof(float);
  return {count == 1 || in_cluster ? 0 : static_cast<std::uint64_t>(count) * of_part, count};
}

fa_status decode(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  const auto [count, in_cluster] = parts_of(call, gpu);
  FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, decoding_workspace(call, gpu).bytes, "fa_fwd_workspace"));
  Decoding p{};
  p.q = place_of(args.q);
  p.k = place_of(args.k);
  p.v = place_of(args.v);
  p.o = place_of(args.o);
  p.lse = args.lse;
  p.o_parts = static_cast<float *>(args.workspace);
  p.lse_parts = p.o_parts + rows_of_lse(problem) * problem.head_dim * count;
  p.cu_seqlens_q = args.cu_seqlens_q;
  p.cu_seqlens_k = args.cu_seqlens_k;
  p.used_k = args.cache_seqlens != nullptr ? args.cache_seqlens : args.seqused_k;
  p.leftpad_k = args.leftpad_k;
  p.batch_index = args.cache_batch_idx;
  p.block_table = args.block_table;
  p.block_table_stride = args.block_table_stride;
  p.page_size = problem.page_size;
  p.k_new = place_of(args.k_new);
  p.v_new = place_of(args.v_new);
  p.seqlen_new = args.seqlen_new;
  p.rotary_cos = args.rotary_cos;
  p.rotary_sin = args.rotary_sin;
  p.rotary_dim = args.rotary_dim;
  p.rotary_interleaved = (args.flags & FA_FLAG_ROTARY_INTERLEAVED) != 0;
  p.rotary_moves = problem.causal || !asked_windows(args).unbounded();
  p.batch = problem.batch;
  p.seqlen_q = problem.seqlen_q;
  p.seqlen_k = problem.seqlen_k;
  p.total_q = static_cast<std::int32_t>(problem.total_q);
  p.heads_k = problem.heads_k;
  p.group = problem.heads_q / problem.heads_k;
  p.head_dim = problem.head_dim;
  p.left = problem.windows.left;
  p.right = problem.windows.right;
  p.scale = problem.scale;
  p.softcap = problem.softcap;
  p.parts = count;
  p.in_cluster = in_cluster;
  return launch_decoding(p, problem.dtype, static_cast<cudaStream_t>(args.stream));
}

}  // namespace flashdepot::fa4
