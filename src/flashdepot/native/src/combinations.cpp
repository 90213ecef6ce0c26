#include "combinations.h"

#include <initializer_list>

#include "checks.h"
#include "error.h"

namespace flashdepot {
namespace {

struct Field {
  const char *name;
  const void *value;
};

// Both or none.
fa_status check_pair(const Field &a, const Field &b) {
  if ((a.value != nullptr) != (b.value != nullptr)) {
    const bool first = a.value != nullptr;
    return refuse(FA_STATUS_INVALID, "%s is set and %s is NULL; set both or none", first ? a.name : b.name,
                  first ? b.name : a.name);
  }
  return FA_STATUS_OK;
}

// A number that means something only while a pointer is set.
fa_status check_idle(const char *name, std::int64_t value, const char *pointer) {
  if (value != 0) {
    return refuse(FA_STATUS_INVALID, "%s is %lld and %s is NULL; set both or leave it 0", name,
                  static_cast<long long>(value), pointer);
  }
  return FA_STATUS_OK;
}

fa_status check_packed(const fa_fwd_args &args) {
  const Field of_a_cache[] = {
      {"cache_seqlens", args.cache_seqlens}, {"cache_batch_idx", args.cache_batch_idx},
      {"k_new.data", args.k_new.data},       {"v_new.data", args.v_new.data},
      {"rotary_cos", args.rotary_cos},       {"rotary_sin", args.rotary_sin}};
  for (const Field &field : of_a_cache) {
    if (field.value != nullptr) {
      return refuse(
          FA_STATUS_INVALID,
          "%s is set and so is cu_seqlens_q; %s belongs to a KV cache, whose queries are not "
          "packed: leave one of them NULL",
          field.name, field.name);
    }
  }
  return FA_STATUS_OK;
}

fa_status check_not_packed(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(check_idle("total_q", args.total_q, "cu_seqlens_q"));
  FLASHDEPOT_TRY(check_idle("total_k", args.total_k, "cu_seqlens_k"));
  if (args.seqused_k != nullptr) {
    return refuse(
        FA_STATUS_INVALID,
        "seqused_k is set and cu_seqlens_k is NULL; it belongs to a packed batch: for keys with "
        "a batch dimension use cache_seqlens");
  }
  if (args.seqused_q != nullptr) {
    return refuse(FA_STATUS_INVALID,
                  "seqused_q is set and cu_seqlens_q is NULL; it belongs to a packed batch");
  }
  if (args.leftpad_k != nullptr && args.cache_seqlens == nullptr) {
    return refuse(
        FA_STATUS_INVALID,
        "leftpad_k is set and cache_seqlens is NULL; set cache_seqlens, with seqlen_k for every "
        "sequence if the cache is full");
  }
  return FA_STATUS_OK;
}

fa_status check_paging(const fa_fwd_args &args) {
  if (args.block_table == nullptr) {
    FLASHDEPOT_TRY(check_idle("page_size", args.page_size, "block_table"));
    return check_idle("block_table_stride", args.block_table_stride, "block_table");
  }
  FLASHDEPOT_TRY(check_range("page_size", args.page_size, 1, INT32_MAX));
  FLASHDEPOT_TRY(check_range("block_table_stride", args.block_table_stride, 0, kLargestStride));
  return FA_STATUS_OK;
}

fa_status check_append(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(check_range("seqlen_new", args.seqlen_new, 0, INT32_MAX));
  FLASHDEPOT_TRY(check_pair({"k_new.data", args.k_new.data}, {"v_new.data", args.v_new.data}));
  if (args.seqlen_new == 0 && args.k_new.data != nullptr) {
    return refuse(FA_STATUS_INVALID, "k_new.data is set and seqlen_new is 0; set both or none");
  }
  if (args.seqlen_new != 0 && args.k_new.data == nullptr) {
    return refuse(FA_STATUS_INVALID, "seqlen_new is %d and k_new.data is NULL; set both or none",
                  args.seqlen_new);
  }
  if (args.seqlen_new != 0 && args.cache_seqlens == nullptr) {
    return refuse(FA_STATUS_INVALID, "k_new is set and cache_seqlens is NULL; it says where k_new goes");
  }
  return FA_STATUS_OK;
}

fa_status check_rotary(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(check_pair({"rotary_cos", args.rotary_cos}, {"rotary_sin", args.rotary_sin}));
  if (args.rotary_cos == nullptr) {
    if ((args.flags & FA_FLAG_ROTARY_INTERLEAVED) != 0) {
      return refuse(FA_STATUS_INVALID,
                    "flags has FA_FLAG_ROTARY_INTERLEAVED and rotary_cos is NULL; set both or none");
    }
    FLASHDEPOT_TRY(check_idle("rotary_dim", args.rotary_dim, "rotary_cos"));
    return check_idle("rotary_seqlen", args.rotary_seqlen, "rotary_cos");
  }
  if (args.seqlen_new == 0) {
    return refuse(
        FA_STATUS_INVALID,
        "rotary_cos is set and k_new is not; the kernels turn queries only while they append "
        "keys");
  }
  return FA_STATUS_OK;
}

fa_status check_dropout(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(check_pair({"seed_ptr", args.seed_ptr}, {"offset_ptr", args.offset_ptr}));
  return FA_STATUS_OK;
}

// Factors go with eight bits.
fa_status check_descales(const fa_fwd_args &args) {
  for (const Field &field : {Field{"q_descale", args.q_descale}, Field{"k_descale", args.k_descale},
                             Field{"v_descale", args.v_descale}}) {
    if (field.value != nullptr && args.dtype != FA_DTYPE_E4M3) {
      return refuse(FA_STATUS_INVALID,
                    "%s is set and dtype is %d; it is a factor of FA_DTYPE_E4M3 (%d): leave it NULL",
                    field.name, args.dtype, FA_DTYPE_E4M3);
    }
  }
  FLASHDEPOT_TRY(check_range("descale_batch_stride", args.descale_batch_stride, 0, kLargestStride));
  return check_range("descale_head_stride", args.descale_head_stride, 0, kLargestStride);
}

fa_status check_out_dtype(const fa_fwd_args &args) {
  const std::int32_t bits16 = args.dtype == FA_DTYPE_E4M3 ? FA_DTYPE_BF16 : args.dtype;
  if (args.out_dtype != 0 && args.out_dtype != bits16 && args.out_dtype != args.dtype) {
    return refuse(FA_STATUS_UNSUPPORTED, "out_dtype is %d and dtype is %d; allowed: 0 or %d",
                  args.out_dtype, args.dtype, bits16);
  }
  return FA_STATUS_OK;
}

// With ALiBi and a causal mask, lse is off by a constant of each row, which a sink would be added to.
template <typename Args>
fa_status check_sink(const Args &args) {
  if (args.sink != nullptr && args.alibi_slopes != nullptr &&
      (args.flags & FA_FLAG_CAUSAL) != 0) {
    return refuse(FA_STATUS_UNSUPPORTED,
                  "sink, alibi_slopes and FA_FLAG_CAUSAL are set, and no family of this version of "
                  "the library serves all three: leave one of them out");
  }
  return FA_STATUS_OK;
}

}  // namespace

fa_status check_served(const fa_fwd_args &args, const Problem &) {
  FLASHDEPOT_TRY(check_range("attention_chunk", args.attention_chunk, 0, INT32_MAX));
  FLASHDEPOT_TRY(check_out_dtype(args));
  FLASHDEPOT_TRY(check_descales(args));
  return check_sink(args);
}

fa_status check_served(const fa_bwd_args &args, const Problem &) {
  if (args.d_sink != nullptr && args.sink == nullptr) {
    return refuse(FA_STATUS_INVALID, "d_sink is set and sink is NULL; set both or leave d_sink NULL");
  }
  return check_sink(args);
}

fa_status check_combination(const fa_fwd_args &args) {
  FLASHDEPOT_TRY(
      check_pair({"cu_seqlens_q", args.cu_seqlens_q}, {"cu_seqlens_k", args.cu_seqlens_k}));
  FLASHDEPOT_TRY(args.cu_seqlens_q != nullptr ? check_packed(args) : check_not_packed(args));
  FLASHDEPOT_TRY(check_paging(args));
  FLASHDEPOT_TRY(check_append(args));
  FLASHDEPOT_TRY(check_rotary(args));
  FLASHDEPOT_TRY(check_dropout(args));
  return FA_STATUS_OK;
}

fa_status check_combination(const fa_bwd_args &args) {
  FLASHDEPOT_TRY(
      check_pair({"cu_seqlens_q", args.cu_seqlens_q}, {"cu_seqlens_k", args.cu_seqlens_k}));
  if (args.cu_seqlens_q == nullptr) {
    FLASHDEPOT_TRY(check_idle("total_q", args.total_q, "cu_seqlens_q"));
    FLASHDEPOT_TRY(check_idle("total_k", args.total_k, "cu_seqlens_k"));
  }
  return FA_STATUS_OK;
}

fa_status check_values(const fa_fwd_args &args, const Problem &problem) {
  if (args.seqlen_new != 0) {
    FLASHDEPOT_TRY(check_range("seqlen_new", args.seqlen_new, 1, args.seqlen_k));
    // Upstream's own limit, and the queries' blocks are what appends.
    FLASHDEPOT_TRY(check_range("seqlen_q", args.seqlen_q, 1, args.seqlen_k));
  }
  if (args.rotary_cos != nullptr) {
    if (args.rotary_dim < 16 || args.rotary_dim % 16 != 0 || args.rotary_dim > args.head_dim) {
      return refuse(FA_STATUS_INVALID,
                    "rotary_dim is %d; allowed: multiples of 16 from 16 to head_dim, %d",
                    args.rotary_dim, args.head_dim);
    }
    FLASHDEPOT_TRY(check_range("rotary_seqlen", args.rotary_seqlen, args.seqlen_k, INT32_MAX));
  }
  if (!problem.dropout() && args.p_debug != nullptr) {
    return refuse(FA_STATUS_INVALID,
                  "p_debug is set and dropout is 0; the kernels write it with dropout only");
  }
  return FA_STATUS_OK;
}

}  // namespace flashdepot
