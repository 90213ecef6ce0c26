#include "problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "error.h"

namespace flashdepot {
namespace {

// The kernels count rows, keys and window ends in 32 bits; the sum of two sequences and a window
// must fit as well.
constexpr std::int32_t kLongest = 1 << 29;
// gridDim.y and gridDim.z (CUDA C++ Programming Guide, technical specifications).
constexpr std::int32_t kGridLimit = 65535;
// Beyond any address space in elements, and small enough for 64-bit products.
constexpr std::int64_t kLargestStride = std::int64_t{1} << 46;
// Kernels load and store 128 bits at a time: 8 elements.
constexpr std::uintptr_t kAlignment = 16;
constexpr std::int64_t kStrideUnit = 8;

// Newton's method from above; value >= 1. Not std::sqrt, which would make libm a dependency of
// every program that links the static library.
double square_root(double value) {
  double root = value;
  for (double next = (root + value / root) / 2; next < root; next = (root + value / root) / 2) {
    root = next;
  }
  return root;
}

void check_range(const char *name, std::int32_t value, std::int32_t low, std::int32_t high) {
  if (value < low || value > high) {
    refuse(FA2_INVALID, "%s is %d; allowed: %d to %d", name, value, low, high);
  }
}

struct PointerField {
  const char *name;
  std::size_t offset;
};

#define POINTER(field) {#field, offsetof(fa2_fwd_args, field)}
constexpr PointerField kNotYet[] = {
    POINTER(cu_seqlens_q), POINTER(cu_seqlens_k), POINTER(seqused_k),      POINTER(leftpad_k),
    POINTER(block_table),  POINTER(k_new.data),   POINTER(v_new.data),     POINTER(cache_seqlens),
    POINTER(rotary_cos),   POINTER(rotary_sin),   POINTER(cache_batch_idx)};
#undef POINTER

void check_implemented(const fa2_fwd_args &args) {
  for (const PointerField &field : kNotYet) {
    const void *value;
    std::memcpy(&value, reinterpret_cast<const char *>(&args) + field.offset, sizeof value);
    if (value != nullptr) {
      refuse(FA2_UNSUPPORTED,
             "%s is set; this release of flashdepot runs dense attention only, so leave it NULL",
             field.name);
    }
  }
  if (!(args.dropout >= 0.0f && args.dropout < 1.0f)) {
    refuse(FA2_INVALID, "dropout is %g; allowed: 0 up to, but not including, 1",
           static_cast<double>(args.dropout));
  }
  if (args.dropout > 0.0f) {
    refuse(FA2_UNSUPPORTED,
           "dropout is %g; this release of flashdepot does not implement it, so "
           "leave it 0",
           static_cast<double>(args.dropout));
  }
  if (args.p_debug != nullptr) {
    refuse(FA2_INVALID, "p_debug is set and dropout is 0; the kernels write it with dropout only");
  }
  if ((args.flags & FA2_ROTARY_INTERLEAVED) != 0) {
    refuse(FA2_INVALID,
           "flags has FA2_ROTARY_INTERLEAVED and rotary_cos is NULL; set both or none");
  }
}

void check_sizes(const fa2_fwd_args &args) {
  if (args.dtype != FA2_FP16 && args.dtype != FA2_BF16) {
    refuse(FA2_INVALID, "dtype is %d; allowed: FA2_FP16 (%d), FA2_BF16 (%d)", args.dtype, FA2_FP16,
           FA2_BF16);
  }
  check_range("batch", args.batch, 0, kGridLimit);
  check_range("seqlen_q", args.seqlen_q, 0, kLongest);
  check_range("seqlen_k", args.seqlen_k, 0, kLongest);
  check_range("heads_q", args.heads_q, 1, kGridLimit);
  check_range("heads_k", args.heads_k, 1, args.heads_q);
  if (args.heads_q % args.heads_k != 0) {
    refuse(FA2_INVALID, "heads_q is %d and heads_k is %d; allowed: a heads_k that divides heads_q",
           args.heads_q, args.heads_k);
  }
  if (args.head_dim < 8 || args.head_dim > 256 || args.head_dim % 8 != 0) {
    refuse(FA2_INVALID, "head_dim is %d; allowed: multiples of 8 from 8 to 256", args.head_dim);
  }
  const std::int64_t rows = std::int64_t{args.batch} * args.heads_q * args.seqlen_q;
  if (rows > INT32_MAX) {
    refuse(FA2_INVALID,
           "batch * heads_q * seqlen_q is %lld; allowed: less than 2^31, which is how "
           "the kernels count rows: split the batch",
           static_cast<long long>(rows));
  }
}

void check_window(const fa2_fwd_args &args, const char *name, std::int32_t value,
                  std::uint32_t flag, const char *flag_name) {
  if ((args.flags & flag) == 0 && value != 0) {
    refuse(FA2_INVALID,
           "%s is %d and flags has no %s, so it would be unbounded; set the flag or "
           "leave it 0",
           name, value, flag_name);
  }
  if (value < 0) {
    refuse(FA2_INVALID, "%s is %d; allowed: 0 and up, or no %s for an unbounded one", name, value,
           flag_name);
  }
}

void check_numbers(const fa2_fwd_args &args) {
  if (!std::isfinite(args.scale) || args.scale < 0.0f) {
    refuse(FA2_INVALID, "scale is %g; allowed: finite and positive, or 0 for 1 / sqrt(head_dim)",
           static_cast<double>(args.scale));
  }
  if (!std::isfinite(args.softcap) || args.softcap < 0.0f) {
    refuse(FA2_INVALID, "softcap is %g; allowed: finite and positive, or 0 for none",
           static_cast<double>(args.softcap));
  }
  check_range("num_splits", args.num_splits, 0, 128);
  check_window(args, "window_left", args.window_left, FA2_WINDOW_LEFT, "FA2_WINDOW_LEFT");
  check_window(args, "window_right", args.window_right, FA2_WINDOW_RIGHT, "FA2_WINDOW_RIGHT");
}

void check_alignment(const char *name, const char *member, const void *data,
                     std::uintptr_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    refuse(FA2_INVALID, "%s%s is %p; allowed: addresses aligned to %d bytes", name, member, data,
           static_cast<int>(alignment));
  }
}

void check_stride(const char *tensor, const char *dimension, std::int64_t stride,
                  std::int32_t extent, bool written) {
  if (extent <= 1) {
    return;
  }
  if (stride < 0 || stride > kLargestStride || stride % kStrideUnit != 0) {
    refuse(FA2_INVALID,
           "%s.%s_stride is %lld; allowed: multiples of 8 (in elements) from 0 to 2^46", tensor,
           dimension, static_cast<long long>(stride));
  }
  if (written && stride == 0) {
    refuse(FA2_INVALID, "%s.%s_stride is 0 over %d elements; an output cannot overlap itself",
           tensor, dimension, extent);
  }
}

void check_tensor(const char *name, const fa2_tensor &tensor, std::int32_t batch, std::int32_t rows,
                  std::int32_t heads, bool written) {
  if (tensor.data == nullptr) {
    refuse(FA2_INVALID, "%s.data is NULL; it holds batch %d x %d rows x %d heads", name, batch,
           rows, heads);
  }
  check_alignment(name, ".data", tensor.data, kAlignment);
  check_stride(name, "batch", tensor.batch_stride, batch, written);
  check_stride(name, "row", tensor.row_stride, rows, written);
  check_stride(name, "head", tensor.head_stride, heads, written);
}

}  // namespace

Problem read_problem(const fa2_fwd_args &args) {
  check_implemented(args);
  check_sizes(args);
  check_numbers(args);

  Problem problem{};
  problem.dtype = args.dtype;
  problem.batch = args.batch;
  problem.seqlen_q = args.seqlen_q;
  problem.seqlen_k = args.seqlen_k;
  problem.heads_q = args.heads_q;
  problem.heads_k = args.heads_k;
  problem.head_dim = args.head_dim;
  problem.group = 1;
  problem.scale =
      args.scale != 0.0f ? args.scale : static_cast<float>(1.0 / square_root(args.head_dim));
  problem.softcap = args.softcap;
  problem.alibi = args.alibi_slopes != nullptr;

  // -1 is unbounded, and a window that reaches every key is as good as that. To the right that
  // takes sq - 1, so with more queries than keys upstream's own limit, sk, would cut keys off.
  const std::int32_t rightmost = std::max(args.seqlen_q, args.seqlen_k);
  std::int32_t left = (args.flags & FA2_WINDOW_LEFT) != 0 ? args.window_left : -1;
  std::int32_t right = (args.flags & FA2_WINDOW_RIGHT) != 0 ? args.window_right : -1;
  left = left >= args.seqlen_k ? -1 : left;
  right = right >= rightmost ? -1 : right;

  // One query sees every key, causal or not; but a causal unit adds the ALiBi bias another way.
  if ((args.flags & FA2_CAUSAL) != 0 && (args.seqlen_q > 1 || problem.alibi)) {
    right = 0;
  }

  // Decoding with grouped heads: the queries of one key head are rows of one tile instead of tiles
  // with one row each. Only strides change.
  if (args.seqlen_q == 1 && args.heads_q > args.heads_k && left < 0 && right < 0 &&
      !problem.alibi) {
    problem.group = args.heads_q / args.heads_k;
    problem.seqlen_q = problem.group;
    problem.heads_q = args.heads_k;
  }

  problem.causal = left < 0 && right == 0;
  // A window with one end gets the other, at the far end of the keys.
  problem.window_left = left < 0 && right >= 0 ? args.seqlen_k : left;
  problem.window_right = right < 0 && left >= 0 ? rightmost : right;
  return problem;
}

void check_device(std::int32_t ordinal) {
  check_range("device", ordinal, 0, INT32_MAX);
}

void check_buffers(const fa2_fwd_args &args) {
  check_alignment("workspace", "", args.workspace, kAlignment);
  if (args.workspace == nullptr && args.workspace_bytes != 0) {
    refuse(FA2_INVALID, "workspace is NULL and workspace_bytes is %llu; set both or none",
           static_cast<unsigned long long>(args.workspace_bytes));
  }
  check_alignment("alibi_slopes", "", args.alibi_slopes, alignof(float));
  if (args.alibi_batch_stride < 0 || args.alibi_batch_stride > kLargestStride) {
    refuse(FA2_INVALID, "alibi_batch_stride is %lld; allowed: 0 to 2^46",
           static_cast<long long>(args.alibi_batch_stride));
  }
  if (args.batch == 0 || args.seqlen_q == 0) {
    return;
  }
  check_tensor("q", args.q, args.batch, args.seqlen_q, args.heads_q, false);
  if (args.seqlen_k != 0) {
    check_tensor("k", args.k, args.batch, args.seqlen_k, args.heads_k, false);
    check_tensor("v", args.v, args.batch, args.seqlen_k, args.heads_k, false);
  }
  check_tensor("o", args.o, args.batch, args.seqlen_q, args.heads_q, true);
  if (args.lse == nullptr) {
    refuse(FA2_INVALID, "lse is NULL; it holds batch %d x %d heads x %d rows of float", args.batch,
           args.heads_q, args.seqlen_q);
  }
  check_alignment("lse", "", args.lse, alignof(float));
}

}  // namespace flashdepot
