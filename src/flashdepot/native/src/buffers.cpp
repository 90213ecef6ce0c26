#include "buffers.h"

#include <algorithm>

#include "checks.h"
#include "error.h"

namespace flashdepot {
namespace {

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
fa_status check_common(const Args &args) {
  FLASHDEPOT_TRY(check_alignment("workspace", "", args.workspace, kVectorAlignment));
  if (args.workspace == nullptr && args.workspace_bytes != 0) {
    return refuse(FA_STATUS_INVALID, "workspace is NULL and workspace_bytes is %llu; set both or none",
                  static_cast<unsigned long long>(args.workspace_bytes));
  }
  FLASHDEPOT_TRY(check_alignment("alibi_slopes", "", args.alibi_slopes, alignof(float)));
  FLASHDEPOT_TRY(check_alignment("sink", "", args.sink, alignof(float)));
  if (args.alibi_batch_stride < 0 || args.alibi_batch_stride > kLargestStride) {
    return refuse(FA_STATUS_INVALID, "alibi_batch_stride is %lld; allowed: 0 to 2^46",
                  static_cast<long long>(args.alibi_batch_stride));
  }
  FLASHDEPOT_TRY(check_alignment("cu_seqlens_q", "", args.cu_seqlens_q, alignof(std::int32_t)));
  FLASHDEPOT_TRY(check_alignment("cu_seqlens_k", "", args.cu_seqlens_k, alignof(std::int32_t)));
  return FA_STATUS_OK;
}

template <typename Args>
fa_status check_lse(const Args &args, const Problem &problem) {
  if (args.lse == nullptr && problem.packed()) {
    return refuse(FA_STATUS_INVALID, "lse is NULL; it holds %d heads x %lld rows of float", args.heads_q,
                  static_cast<long long>(args.total_q));
  }
  if (args.lse == nullptr) {
    return refuse(FA_STATUS_INVALID, "lse is NULL; it holds batch %d x %d heads x %d rows of float",
                  args.batch, args.heads_q, args.seqlen_q);
  }
  FLASHDEPOT_TRY(check_alignment("lse", "", args.lse, alignof(float)));
  return FA_STATUS_OK;
}

fa_status check_indices(const fa_fwd_args &args) {
  const struct {
    const char *name;
    const std::int32_t *data;
  } lists[] = {{"seqused_q", args.seqused_q},
               {"seqused_k", args.seqused_k},
               {"leftpad_k", args.leftpad_k},
               {"block_table", args.block_table},
               {"cache_seqlens", args.cache_seqlens},
               {"cache_batch_idx", args.cache_batch_idx}};
  for (const auto &list : lists) {
    FLASHDEPOT_TRY(check_alignment(list.name, "", list.data, alignof(std::int32_t)));
  }
  FLASHDEPOT_TRY(check_alignment("q_descale", "", args.q_descale, alignof(float)));
  FLASHDEPOT_TRY(check_alignment("k_descale", "", args.k_descale, alignof(float)));
  FLASHDEPOT_TRY(check_alignment("v_descale", "", args.v_descale, alignof(float)));
  return FA_STATUS_OK;
}

fa_status check_dropout(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(
      check_set("rng_state", args.rng_state, "seed and offset of the dropout, for fa_bwd"));
  FLASHDEPOT_TRY(check_alignment("rng_state", "", args.rng_state, alignof(std::uint64_t)));
  FLASHDEPOT_TRY(check_alignment("seed_ptr", "", args.seed_ptr, alignof(std::int64_t)));
  FLASHDEPOT_TRY(check_alignment("offset_ptr", "", args.offset_ptr, alignof(std::int64_t)));
  FLASHDEPOT_TRY(check_alignment("p_debug", "", args.p_debug, kVectorAlignment));
  return FA_STATUS_OK;
}

}  // namespace

fa_status check_buffers(const fa_fwd_args &args, const Problem &problem) {
  FLASHDEPOT_TRY(check_common(args));
  FLASHDEPOT_TRY(check_indices(args));
  if (problem.no_queries()) {
    return FA_STATUS_OK;
  }
  const std::int64_t unit = problem.dtype == FA_DTYPE_E4M3 ? 2 * kStrideUnit : kStrideUnit;
  FLASHDEPOT_TRY(check_tensor("q", args.q, queries(args, problem), unit));
  if (args.qv.data != nullptr) {
    FLASHDEPOT_TRY(check_tensor("qv", args.qv, queries(args, problem), unit));
  }
  if (!problem.no_keys()) {
    const bool appends = args.seqlen_new != 0;
    FLASHDEPOT_TRY(check_tensor("k", args.k, keys_of(args, problem), appends, unit));
    FLASHDEPOT_TRY(check_tensor("v", args.v, keys_of(args, problem), appends, unit));
    if (appends) {
      const Extents fresh{args.batch, args.seqlen_new, args.heads_k};
      FLASHDEPOT_TRY(check_tensor("k_new", args.k_new, fresh, unit));
      FLASHDEPOT_TRY(check_tensor("v_new", args.v_new, fresh, unit));
    }
  }
  FLASHDEPOT_TRY(check_tensor("o", args.o, queries(args, problem), true));
  FLASHDEPOT_TRY(check_lse(args, problem));
  FLASHDEPOT_TRY(check_alignment("rotary_cos", "", args.rotary_cos, kVectorAlignment));
  FLASHDEPOT_TRY(check_alignment("rotary_sin", "", args.rotary_sin, kVectorAlignment));
  if (problem.dropout()) {
    FLASHDEPOT_TRY(check_dropout(args));
  }
  return FA_STATUS_OK;
}

fa_status check_buffers(const fa_bwd_args &args, const Problem &problem) {
  FLASHDEPOT_TRY(check_common(args));
  FLASHDEPOT_TRY(check_alignment("d_lse", "", args.d_lse, alignof(float)));
  FLASHDEPOT_TRY(check_alignment("d_sink", "", args.d_sink, alignof(float)));
  const bool has_queries = !problem.no_queries();
  const bool has_keys = !problem.no_keys();
  if (has_queries) {
    const Extents extents = queries(args, problem);
    FLASHDEPOT_TRY(check_tensor("q", args.q, extents));
    FLASHDEPOT_TRY(check_tensor("o", args.o, extents));
    FLASHDEPOT_TRY(check_tensor("d_o", args.d_o, extents));
    FLASHDEPOT_TRY(check_tensor("dq", args.dq, extents, true));
    FLASHDEPOT_TRY(check_lse(args, problem));
    if (args.d_sink != nullptr) {
      FLASHDEPOT_TRY(check_set("softmax_d", args.softmax_d,
                               problem.packed() ? "heads_q x (total_q + 128 * batch) floats"
                                                : "batch x heads_q x (seqlen_q up to 128s) floats"));
    }
    FLASHDEPOT_TRY(check_alignment("softmax_d", "", args.softmax_d, alignof(float)));
  }
  if (problem.batch != 0 && has_keys) {
    const Extents extents = keys(args, problem);
    if (has_queries) {
      FLASHDEPOT_TRY(check_tensor("k", args.k, extents));
      FLASHDEPOT_TRY(check_tensor("v", args.v, extents));
    }
    FLASHDEPOT_TRY(check_tensor("dk", args.dk, extents, true));
    FLASHDEPOT_TRY(check_tensor("dv", args.dv, extents, true));
  }
  if (problem.dropout() && has_queries && has_keys) {
    FLASHDEPOT_TRY(check_set("rng_state", args.rng_state,
                             "seed and offset of the dropout, as fa_fwd wrote them"));
    FLASHDEPOT_TRY(check_alignment("rng_state", "", args.rng_state, alignof(std::uint64_t)));
  }
  return FA_STATUS_OK;
}

fa_status check_workspace(std::uint64_t has, std::uint64_t needs, const char *query) {
  if (has < needs) {
    return refuse(
        FA_STATUS_WORKSPACE_TOO_SMALL, "workspace_bytes is %llu and this call needs %llu; %s says so",
        static_cast<unsigned long long>(has), static_cast<unsigned long long>(needs), query);
  }
  return FA_STATUS_OK;
}

}  // namespace flashdepot
