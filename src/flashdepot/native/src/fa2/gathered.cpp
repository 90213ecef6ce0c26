#include "fa2/gathered.h"

#include "fa2/gathering.h"
#include "fa2/units.h"
#include "lengths.h"

namespace flashdepot::fa2 {
namespace {

// Keys that the split-KV kernels read at a time (flash_fwd_launch_template.h 168 of 2.8.3.post2): a
// page must hold a whole number of them.
std::int32_t keys_of_a_tile(std::int32_t head_dim) {
  const std::int32_t dim = unit_head_dim(head_dim);
  return dim <= 64 ? 256 : dim <= 128 ? 128 : 64;
}

const std::int32_t *given_lengths(const fa_fwd_args &args) {
  return args.cu_seqlens_q != nullptr ? args.seqused_k : args.cache_seqlens;
}

// Keys of all sequences, as many as the longest may have.
Wide every_key(const Problem &problem, std::int32_t dim) {
  return {0, problem.batch, problem.seqlen_k, problem.heads_k, dim, 0};
}

Wide place_always(std::uint64_t &bytes, Wide keys, std::int32_t dim) {
  const std::int32_t from_dim = keys.from_dim;
  keys.from_dim = 0;
  keys = place_wide(bytes, keys, dim);
  keys.from_dim = from_dim;
  return keys;
}

std::uint64_t place_list(std::uint64_t &bytes, std::int64_t count) {
  constexpr std::uint64_t kAlignment = 256;
  const std::uint64_t start = bytes;
  bytes += (static_cast<std::uint64_t>(count) * sizeof(std::int32_t) + kAlignment - 1) /
           kAlignment * kAlignment;
  return start;
}

std::int32_t *list_at(void *workspace, std::uint64_t start) {
  return reinterpret_cast<std::int32_t *>(static_cast<char *>(workspace) + start);
}

}  // namespace

bool gathers(const ForwardCall &call) {
  const Problem &problem = call.problem;
  if (problem.no_queries() || problem.no_keys() || problem.dropout()) {
    return false;
  }
  const bool in_place = problem.paged() && problem.page_size % keys_of_a_tile(problem.head_dim) == 0;
  return (problem.paged() && !in_place) ||
         (problem.head_dim_q != problem.head_dim_v &&
          (problem.paged() || problem.kind == Kind::cache));
}

Gathered gathered_of(const ForwardCall &call) {
  const Problem &problem = call.problem;
  const std::int32_t dim = problem.head_dim;
  Gathered gathered{};
  gathered.k = place_always(gathered.bytes, every_key(problem, problem.head_dim_q), dim);
  gathered.v = place_always(gathered.bytes, every_key(problem, problem.head_dim_v), dim);
  gathered.q = place_wide(gathered.bytes, queries_of(problem, problem.head_dim_q), dim);
  gathered.o = place_wide(gathered.bytes, queries_of(problem, problem.head_dim_v), dim);
  if (problem.packed()) {
    gathered.starts = place_list(gathered.bytes, std::int64_t{problem.batch} + 1);
    gathered.lengths = place_list(gathered.bytes, problem.batch);
  }
  return gathered;
}

ForwardCall over_gathered(const ForwardCall &call, const Gathered &gathered, void *workspace) {
  ForwardCall inner = call;
  auto &[args, problem] = inner;
  args.block_table = nullptr;
  args.block_table_stride = 0;
  args.page_size = problem.page_size = 0;
  args.cache_batch_idx = nullptr;
  args.k = gathered.k.at(workspace);
  args.v = gathered.v.at(workspace);
  if (gathered.q.any()) {
    args.q = fa_as_const(gathered.q.at(workspace));
  }
  args.o = wide_output(gathered.o, args.o, workspace);
  args.head_dim_v = 0;
  args.head_dim = problem.head_dim_q = problem.head_dim_v = problem.head_dim;
  if (problem.packed()) {
    args.cu_seqlens_k = list_at(workspace, gathered.starts);
    args.seqused_k =
        args.seqused_k != nullptr ? args.seqused_k : list_at(workspace, gathered.lengths);
    args.total_k = problem.total_k = std::int64_t{problem.batch} * problem.seqlen_k;
  } else if (args.cache_seqlens == nullptr) {
    problem.kind = Kind::dense;
  }
  if (workspace != nullptr) {
    args.workspace = static_cast<char *>(workspace) + gathered.bytes;
    args.workspace_bytes -= gathered.bytes;
  }
  return inner;
}

fa_status gather(const ForwardCall &call, const Gathered &gathered) {
  const auto &[args, problem] = call;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  const std::int32_t *lengths = given_lengths(args);
  if (problem.packed()) {
    FLASHDEPOT_TRY(launch_starts(list_at(args.workspace, gathered.starts), problem.batch,
                                 problem.seqlen_k, stream));
    if (lengths == nullptr) {
      std::int32_t *made = list_at(args.workspace, gathered.lengths);
      FLASHDEPOT_TRY(launch_lengths({made, args.cu_seqlens_k, 0, problem.batch}, stream));
      lengths = made;
    }
  }
  const auto copy = [&](const fa_tensor &from, const Wide &to) {
    return launch_gathering({fa_as_const(from), to.at(args.workspace), args.block_table,
                             args.cache_batch_idx, lengths, args.block_table_stride,
                             problem.page_size, problem.batch, problem.seqlen_k, problem.heads_k,
                             to.from_dim, to.dim},
                            stream);
  };
  FLASHDEPOT_TRY(copy(args.k, gathered.k));
  FLASHDEPOT_TRY(copy(args.v, gathered.v));
  fa_const_tensor q = args.q;
  return widen(gathered.q, args.q, args.workspace, q, stream);
}

fa_status deliver(const ForwardCall &call, const Gathered &gathered) {
  const fa_fwd_args &args = call.args;
  return narrow(gathered.o, wide_output(gathered.o, args.o, args.workspace), args.o,
                args.cu_seqlens_q, args.batch, static_cast<cudaStream_t>(args.stream));
}

}  // namespace flashdepot::fa2
