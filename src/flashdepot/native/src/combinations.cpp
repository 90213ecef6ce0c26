#include "combinations.h"

#include "checks.h"
#include "error.h"

namespace flashdepot {
namespace {

struct Field {
  const char *name;
  const void *value;
};

// Both or none.
void check_pair(const Field &a, const Field &b) {
  if ((a.value != nullptr) != (b.value != nullptr)) {
    const bool first = a.value != nullptr;
    refuse(FA_INVALID, "%s is set and %s is NULL; set both or none", first ? a.name : b.name,
           first ? b.name : a.name);
  }
}

// A number that means something only while a pointer is set.
void check_idle(const char *name, std::int64_t value, const char *pointer) {
  if (value != 0) {
    refuse(FA_INVALID, "%s is %lld and %s is NULL; set both or leave it 0", name,
           static_cast<long long>(value), pointer);
  }
}

void check_packed(const fa_fwd_args &args) {
  const Field of_a_cache[] = {{"cache_seqlens", args.cache_seqlens},
                              {"cache_batch_idx", args.cache_batch_idx},
                              {"k_new.data", args.k_new.data},
                              {"v_new.data", args.v_new.data},
                              {"rotary_cos", args.rotary_cos},
                              {"rotary_sin", args.rotary_sin}};
  for (const Field &field : of_a_cache) {
    if (field.value != nullptr) {
      refuse(FA_INVALID,
             "%s is set and so is cu_seqlens_q; %s belongs to a KV cache, whose queries are not "
             "packed: leave one of them NULL",
             field.name, field.name);
    }
  }
}

void check_not_packed(const fa_fwd_args &args) {
  check_idle("total_q", args.total_q, "cu_seqlens_q");
  check_idle("total_k", args.total_k, "cu_seqlens_k");
  if (args.seqused_k != nullptr) {
    refuse(FA_INVALID,
           "seqused_k is set and cu_seqlens_k is NULL; it belongs to a packed batch: for keys with "
           "a batch dimension use cache_seqlens");
  }
  if (args.leftpad_k != nullptr && args.cache_seqlens == nullptr) {
    refuse(FA_INVALID,
           "leftpad_k is set and cache_seqlens is NULL; set cache_seqlens, with seqlen_k for every "
           "sequence if the cache is full");
  }
}

void check_paging(const fa_fwd_args &args) {
  if (args.block_table == nullptr) {
    check_idle("page_size", args.page_size, "block_table");
    check_idle("block_table_stride", args.block_table_stride, "block_table");
    return;
  }
  if (args.page_size <= 0 || args.page_size % 256 != 0) {
    refuse(FA_INVALID, "page_size is %d; allowed: multiples of 256", args.page_size);
  }
  check_range("block_table_stride", args.block_table_stride, 0, kLargestStride);
  const Field never[] = {{"leftpad_k", args.leftpad_k}, {"cache_batch_idx", args.cache_batch_idx}};
  for (const Field &field : never) {
    if (field.value != nullptr) {
      refuse(FA_UNSUPPORTED,
             "%s and block_table are set, and no kernel of upstream does both: leave one of them "
             "NULL",
             field.name);
    }
  }
}

void check_append(const fa_fwd_args &args) {
  check_range("seqlen_new", args.seqlen_new, 0, INT32_MAX);
  check_pair({"k_new.data", args.k_new.data}, {"v_new.data", args.v_new.data});
  if (args.seqlen_new == 0 && args.k_new.data != nullptr) {
    refuse(FA_INVALID, "k_new.data is set and seqlen_new is 0; set both or none");
  }
  if (args.seqlen_new != 0 && args.k_new.data == nullptr) {
    refuse(FA_INVALID, "seqlen_new is %d and k_new.data is NULL; set both or none",
           args.seqlen_new);
  }
  if (args.seqlen_new != 0 && args.cache_seqlens == nullptr) {
    refuse(FA_INVALID, "k_new is set and cache_seqlens is NULL; it says where k_new goes");
  }
}

void check_rotary(const fa_fwd_args &args) {
  check_pair({"rotary_cos", args.rotary_cos}, {"rotary_sin", args.rotary_sin});
  if (args.rotary_cos == nullptr) {
    if ((args.flags & FA_ROTARY_INTERLEAVED) != 0) {
      refuse(FA_INVALID,
             "flags has FA_ROTARY_INTERLEAVED and rotary_cos is NULL; set both or none");
    }
    check_idle("rotary_dim", args.rotary_dim, "rotary_cos");
    check_idle("rotary_seqlen", args.rotary_seqlen, "rotary_cos");
    return;
  }
  if (args.seqlen_new == 0) {
    refuse(FA_INVALID,
           "rotary_cos is set and k_new is not; the kernels turn queries only while they append "
           "keys");
  }
}

void check_dropout(const fa_fwd_args &args) {
  check_pair({"seed_ptr", args.seed_ptr}, {"offset_ptr", args.offset_ptr});
}

}  // namespace

void check_combination(const fa_fwd_args &args) {
  check_pair({"cu_seqlens_q", args.cu_seqlens_q}, {"cu_seqlens_k", args.cu_seqlens_k});
  args.cu_seqlens_q != nullptr ? check_packed(args) : check_not_packed(args);
  check_paging(args);
  check_append(args);
  check_rotary(args);
  check_dropout(args);
}

void check_combination(const fa_bwd_args &args) {
  if (args.reserved0 != 0) {
    refuse(FA_INVALID, "reserved0 is %d; allowed: 0", args.reserved0);
  }
  check_pair({"cu_seqlens_q", args.cu_seqlens_q}, {"cu_seqlens_k", args.cu_seqlens_k});
  if (args.cu_seqlens_q == nullptr) {
    check_idle("total_q", args.total_q, "cu_seqlens_q");
    check_idle("total_k", args.total_k, "cu_seqlens_k");
  }
}

void check_values(const Problem &problem) {
  if (problem.dropout() && problem.softcap > 0.0f) {
    refuse(FA_UNSUPPORTED,
           "dropout is %g and softcap is %g, and no kernel of upstream does both: leave one of "
           "them 0",
           static_cast<double>(1.0f - problem.keep), static_cast<double>(problem.softcap));
  }
}

void check_values(const fa_fwd_args &args, const Problem &problem) {
  check_values(problem);
  if (args.seqlen_new != 0) {
    check_range("seqlen_new", args.seqlen_new, 1, args.seqlen_k);
    // Upstream's own limit, and the queries' blocks are what appends.
    check_range("seqlen_q", args.seqlen_q, 1, args.seqlen_k);
  }
  if (args.rotary_cos != nullptr) {
    if (args.rotary_dim < 16 || args.rotary_dim % 16 != 0 || args.rotary_dim > args.head_dim) {
      refuse(FA_INVALID, "rotary_dim is %d; allowed: multiples of 16 from 16 to head_dim, %d",
             args.rotary_dim, args.head_dim);
    }
    check_range("rotary_seqlen", args.rotary_seqlen, args.seqlen_k, INT32_MAX);
  }
  if (!problem.dropout()) {
    if (args.p_debug != nullptr) {
      refuse(FA_INVALID, "p_debug is set and dropout is 0; the kernels write it with dropout only");
    }
    return;
  }
  const char *split_field =
      problem.kind == Kind::cache && problem.split_field == nullptr ? "cache_seqlens"
                                                                    : problem.split_field;
  if (split_field != nullptr) {
    refuse(FA_UNSUPPORTED,
           "dropout is %g and %s is set, and no kernel of upstream drops out over a cache or "
           "pages: leave dropout 0",
           static_cast<double>(args.dropout), split_field);
  }
  const std::int64_t heads = std::int64_t{args.batch} * args.heads_q;
  const std::int64_t square = round_up(args.seqlen_q) * round_up(args.seqlen_k);
  if (args.p_debug != nullptr && heads > 0 && square > INT32_MAX / heads) {
    refuse(FA_UNSUPPORTED,
           "p_debug is set and holds batch * heads_q = %lld times %lld probabilities; the kernels "
           "index them with 32 bits: allowed: less than 2^31 in all",
           static_cast<long long>(heads), static_cast<long long>(square));
  }
}

void check_splits(const fa_fwd_args &args, const Problem &problem) {
  if (args.num_splits <= 1) {
    return;
  }
  if (problem.dropout()) {
    refuse(FA_UNSUPPORTED,
           "num_splits is %d and dropout is %g, and the split-KV kernels have no dropout: leave "
           "num_splits 0",
           args.num_splits, static_cast<double>(args.dropout));
  }
  if (problem.packed() && problem.group == 1) {
    refuse(FA_UNSUPPORTED,
           "num_splits is %d and cu_seqlens_q is set; over packed sequences only decoding with "
           "grouped heads splits the keys (seqlen_q 1, total_q = batch, heads_q > heads_k, no "
           "window, no ALiBi, no dropout): leave num_splits 0",
           args.num_splits);
  }
}

}  // namespace flashdepot
