#include "buffers.h"

#include <algorithm>

#include "checks.h"
#include "error.h"

namespace flashdepot {
namespace {

// As the caller sees them: a decoding problem has its queries elsewhere.
template <typename Args>
Extents queries(const Args &args, const Problem &problem) {
  if (problem.packed()) {
    return {1, args.total_q, args.heads_q};
  }
  return {args.batch, args.seqlen_q, args.heads_q};
}

template <typename Args>
Extents keys(const Args &args, const Problem &problem) {
  if (problem.packed()) {
    return {1, args.total_k, args.heads_k};
  }
  return {args.batch, args.seqlen_k, args.heads_k};
}

// Keys that are looked up have as many pages, or sequences in the cache, as the caller knows.
Extents keys_of(const fa_fwd_args &args, const Problem &problem) {
  constexpr std::int64_t kSeveral = 2;
  if (problem.paged()) {
    return {kSeveral, args.page_size, args.heads_k};
  }
  Extents extents = keys(args, problem);
  if (args.cache_batch_idx != nullptr) {
    extents.batch = std::max(extents.batch, kSeveral);
  }
  return extents;
}

template <typename Args>
void check_common(const Args &args) {
  check_alignment("workspace", "", args.workspace, kVectorAlignment);
  if (args.workspace == nullptr && args.workspace_bytes != 0) {
    refuse(FA_INVALID, "workspace is NULL and workspace_bytes is %llu; set both or none",
           static_cast<unsigned long long>(args.workspace_bytes));
  }
  check_alignment("alibi_slopes", "", args.alibi_slopes, alignof(float));
  if (args.alibi_batch_stride < 0 || args.alibi_batch_stride > kLargestStride) {
    refuse(FA_INVALID, "alibi_batch_stride is %lld; allowed: 0 to 2^46",
           static_cast<long long>(args.alibi_batch_stride));
  }
  check_alignment("cu_seqlens_q", "", args.cu_seqlens_q, alignof(std::int32_t));
  check_alignment("cu_seqlens_k", "", args.cu_seqlens_k, alignof(std::int32_t));
}

template <typename Args>
void check_lse(const Args &args, const Problem &problem) {
  if (args.lse == nullptr && problem.packed()) {
    refuse(FA_INVALID, "lse is NULL; it holds %d heads x %lld rows of float", args.heads_q,
           static_cast<long long>(args.total_q));
  }
  if (args.lse == nullptr) {
    refuse(FA_INVALID, "lse is NULL; it holds batch %d x %d heads x %d rows of float", args.batch,
           args.heads_q, args.seqlen_q);
  }
  check_alignment("lse", "", args.lse, alignof(float));
}

void check_indices(const fa_fwd_args &args) {
  const struct {
    const char *name;
    const std::int32_t *data;
  } lists[] = {{"seqused_k", args.seqused_k},
               {"leftpad_k", args.leftpad_k},
               {"block_table", args.block_table},
               {"cache_seqlens", args.cache_seqlens},
               {"cache_batch_idx", args.cache_batch_idx}};
  for (const auto &list : lists) {
    check_alignment(list.name, "", list.data, alignof(std::int32_t));
  }
}

void check_dropout(const fa_fwd_args &args) {
  check_set("rng_state", args.rng_state, "seed and offset of the dropout, for fa_bwd");
  check_alignment("rng_state", "", args.rng_state, alignof(std::uint64_t));
  check_alignment("seed_ptr", "", args.seed_ptr, alignof(std::int64_t));
  check_alignment("offset_ptr", "", args.offset_ptr, alignof(std::int64_t));
  check_alignment("p_debug", "", args.p_debug, kVectorAlignment);
}

}  // namespace

void check_buffers(const fa_fwd_args &args, const Problem &problem) {
  check_common(args);
  check_indices(args);
  if (problem.no_queries()) {
    return;
  }
  check_tensor("q", args.q, queries(args, problem), false);
  if (!problem.no_keys()) {
    const bool appends = args.seqlen_new != 0;
    check_tensor("k", args.k, keys_of(args, problem), appends);
    check_tensor("v", args.v, keys_of(args, problem), appends);
    if (appends) {
      const Extents fresh{args.batch, args.seqlen_new, args.heads_k};
      check_tensor("k_new", args.k_new, fresh, false);
      check_tensor("v_new", args.v_new, fresh, false);
    }
  }
  check_tensor("o", args.o, queries(args, problem), true);
  check_lse(args, problem);
  check_alignment("rotary_cos", "", args.rotary_cos, kVectorAlignment);
  check_alignment("rotary_sin", "", args.rotary_sin, kVectorAlignment);
  if (problem.dropout()) {
    check_dropout(args);
  }
}

void check_buffers(const fa_bwd_args &args, const Problem &problem) {
  check_common(args);
  const bool has_queries = !problem.no_queries();
  const bool has_keys = !problem.no_keys();
  if (has_queries) {
    const Extents extents = queries(args, problem);
    check_tensor("q", args.q, extents, false);
    check_tensor("o", args.o, extents, false);
    check_tensor("d_o", args.d_o, extents, false);
    check_tensor("dq", args.dq, extents, true);
    check_lse(args, problem);
    check_set("softmax_d", args.softmax_d,
              problem.packed() ? "heads_q x (total_q + 128 * batch) floats"
                               : "batch x heads_q x (seqlen_q up to 128s) floats");
    check_alignment("softmax_d", "", args.softmax_d, alignof(float));
  }
  if (problem.batch != 0 && has_keys) {
    const Extents extents = keys(args, problem);
    if (has_queries) {
      check_tensor("k", args.k, extents, false);
      check_tensor("v", args.v, extents, false);
    }
    check_tensor("dk", args.dk, extents, true);
    check_tensor("dv", args.dv, extents, true);
  }
  if (problem.dropout() && has_queries && has_keys) {
    check_set("rng_state", args.rng_state, "seed and offset of the dropout, as fa_fwd wrote them");
    check_alignment("rng_state", "", args.rng_state, alignof(std::uint64_t));
  }
}

void check_row_stride(const char *tensor, std::int64_t stride, std::int64_t rows,
                      const char *kernels) {
  constexpr std::int64_t kBlockRows = 256;
  constexpr std::int64_t kLargest = INT32_MAX / kBlockRows / 8 * 8;
  if (rows > 1 && stride > kLargest) {
    refuse(FA_UNSUPPORTED,
           "%s.row_stride is %lld; the %s kernels step over up to 256 rows in 32 bits: allowed "
           "here: up to %lld",
           tensor, static_cast<long long>(stride), kernels, static_cast<long long>(kLargest));
  }
}

void check_workspace(std::uint64_t has, std::uint64_t needs, const char *query) {
  if (has < needs) {
    refuse(FA_WORKSPACE_TOO_SMALL, "workspace_bytes is %llu and this call needs %llu; %s says so",
           static_cast<unsigned long long>(has), static_cast<unsigned long long>(needs), query);
  }
}

}  // namespace flashdepot
