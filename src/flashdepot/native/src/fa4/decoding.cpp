#include "fa4/decoding.h"

#include <algorithm>
#include <atomic>

#include "buffers.h"
#include "error.h"
#include "fa4/decode.h"
#include "fa4/parts.h"
#include "fa4/shares.h"
#include "fa4/units.h"

namespace flashdepot::fa4 {
namespace {

constexpr std::int32_t kGridLimit = 65535;  // of blocks in y (CUDA C++ Programming Guide)

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

// All but the parts.
Decoding described(const ForwardCall &call) {
  const auto &[args, problem] = call;
  Decoding p{};
  p.q = place_of(args.q);
  p.k = place_of(args.k);
  p.v = place_of(args.v);
  p.o = place_of(args.o);
  p.lse = args.lse;
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
  return p;
}

// Where the workspace of shares has what.
struct ShareBuffers {
  std::uint64_t flags, o, lse, bytes;  // joints come first
};

ShareBuffers share_buffers(const Division &division, const Problem &problem) {
  const auto blocks = static_cast<std::uint64_t>(division.blocks);
  const std::uint64_t rows = 2 * blocks * static_cast<std::uint64_t>(rows_of(problem));
  ShareBuffers at{};
  at.flags = static_cast<std::uint64_t>(problem.batch) * static_cast<std::uint64_t>(problem.heads_k) * sizeof(int4);
  at.o = at.flags + (blocks + 1) / 2 * 2 * sizeof(unsigned long long);  // 16 bytes divide it
  at.lse = at.o + rows * static_cast<std::uint64_t>(problem.head_dim) * sizeof(float);
  at.bytes = division.tiles != 0 && division.most == 1 ? 0 : at.lse + rows * sizeof(float);
  return at;
}

// One that no other call of this process has, and that nothing else leaves in memory (splitmix64).
unsigned long long next_tag() {
  static std::atomic<unsigned long long> calls{0};
  unsigned long long z = (calls.fetch_add(1, std::memory_order_relaxed) + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

Shares shared(const ForwardCall &call, const Decoding &described, const Division &division) {
  const ShareBuffers at = share_buffers(division, call.problem);
  char *const workspace = static_cast<char *>(call.args.workspace);
  Shares s{};
  s.p = described;
  s.joints = reinterpret_cast<int4 *>(workspace);
  s.flags = reinterpret_cast<unsigned long long *>(workspace + at.flags);
  s.p.o_parts = reinterpret_cast<float *>(workspace + at.o);
  s.p.lse_parts = reinterpret_cast<float *>(workspace + at.lse);
  s.tag = joins_inside(division) ? next_tag() : 0;
  s.rows = static_cast<std::int32_t>(rows_of(call.problem));
  s.blocks = division.blocks, s.tiles = division.tiles;
  s.own = division.own;
  s.each = division.each, s.rest = division.rest;
  return s;
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
  const Way way = way_of(call, gpu);
  const auto [count, in_cluster, block] = way.parts;
  const std::uint64_t of_part = static_cast<std::uint64_t>(rows_of_lse(call.problem)) *
                                (static_cast<std::uint64_t>(call.problem.head_dim) + 1) * sizeof(float);
  const std::uint64_t of_parts = count == 1 || in_cluster ? 0 : static_cast<std::uint64_t>(count) * of_part;
  if (way.shares.blocks == 0) {
    return {of_parts, count};
  }
  // Strides decide when the call is launched.
  constexpr std::int32_t kMostSplits = 128;  // that may be asked for
  return {std::max(of_parts, share_buffers(way.shares, call.problem).bytes), std::min(way.shares.most, kMostSplits)};
}

fa_status decode(const ForwardCall &call, const DeviceFacts &gpu) {
  const auto &[args, problem] = call;
  const Way way = way_of(call, gpu);
  const auto [count, in_cluster, block] = way.parts;
  FLASHDEPOT_TRY(check_workspace(args.workspace_bytes, decoding_workspace(call, gpu).bytes, "fa_fwd_workspace"));
  const auto stream = static_cast<cudaStream_t>(args.stream);
  Decoding p = described(call);
  if (way.shares.blocks != 0) {
    Shares shares = shared(call, p, way.shares);
    if (map_keys(shares, problem.dtype, problem.total_k)) {
      return launch_shares(shares, problem.dtype, stream);
    }
  }
  p.o_parts = static_cast<float *>(args.workspace);
  p.lse_parts = p.o_parts + rows_of_lse(problem) * problem.head_dim * count;
  p.parts = count;
  p.block = block;
  p.in_cluster = in_cluster;
  return launch_decoding(p, problem.dtype, stream);
}

}  // namespace flashdepot::fa4
