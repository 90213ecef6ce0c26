// SPDX-License-Identifier: BSD-3-Clause
//
// flash_attention.h for C++17: tensors with their shapes, a workspace that is freed, errors as
// exceptions or as values. Header only, and nothing but the C library and the standard library.
//
//     namespace fa = flashattention;
//     auto q = fa::Tensor::contiguous(q_data, fa::Dtype::bf16, {2, 1024, 16, 128});
//     ...
//     fa::Options options;
//     options.causal = true;
//     fa::run(fa::dense({device, stream}, q, k, v, o, lse, options), allocator);
//
// `allocator` is the caller's: anything with
//     void *allocate(std::size_t bytes, void *stream);
//     void deallocate(void *data, std::size_t bytes, void *stream) noexcept;
// It is asked for a workspace where a call needs one, and gets it back as soon as the call is enqueued:
// both have to be in the order of the stream, as cudaMallocAsync and the caches of frameworks are.
#ifndef FLASH_ATTENTION_HPP
#define FLASH_ATTENTION_HPP

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "flash_attention.hpp needs C++17: -std=c++17, or /std:c++17 of cl. flash_attention.h does not"
#endif

#include <flash_attention.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace flashattention {

// What a call answered: its status, and the text of fa_last_error where that is a failure.
struct Outcome {
  fa_status status = FA_STATUS_OK;
  std::string text;

  explicit operator bool() const noexcept { return status == FA_STATUS_OK; }
};

class Error : public std::runtime_error {
 public:
  explicit Error(const Outcome &outcome) : std::runtime_error(outcome.text), status_(outcome.status) {}
  fa_status status() const noexcept { return status_; }

 private:
  fa_status status_;
};

inline Outcome outcome_of(fa_status status) {
  return {status, status == FA_STATUS_OK ? "" : fa_last_error()};
}

// Throws an Error for a failure.
inline void check(const Outcome &outcome) {
  if (!outcome) throw Error(outcome);
}

enum class Dtype : std::int32_t {
  fp16 = FA_DTYPE_FP16,
  bf16 = FA_DTYPE_BF16,
  fp32 = FA_DTYPE_FP32,
};

// (batch, rows, heads, dim); a packed tensor, (rows, heads, dim), has batch 1.
struct Shape {
  std::int64_t batch, rows, heads, dim;
};

// A view of memory on a device that a call may write. Strides are in elements, that of dim is 1.
template <typename Pointer>
class BasicTensor {
 public:
  // (batch, row, head)
  using Strides = std::array<std::int64_t, 3>;

  BasicTensor(Pointer data, Dtype dtype, const Shape &shape, const Strides &strides)
      : data_(data), dtype_(dtype), shape_(shape), strides_(strides) {}

  static BasicTensor contiguous(Pointer data, Dtype dtype, const Shape &shape) {
    const std::int64_t row = shape.heads * shape.dim;
    return {data, dtype, shape, {shape.rows * row, row, shape.dim}};
  }

  // A tensor that may be written can be read.
  template <typename Other, typename = decltype(Pointer(std::declval<Other>()))>
  BasicTensor(const BasicTensor<Other> &other)  // NOLINT(google-explicit-constructor)
      : BasicTensor(other.data(), other.dtype(), other.shape(), other.strides()) {}

  Pointer data() const { return data_; }
  Dtype dtype() const { return dtype_; }
  const Shape &shape() const { return shape_; }
  const Strides &strides() const { return strides_; }

 private:
  Pointer data_;
  Dtype dtype_;
  Shape shape_;
  Strides strides_;
};

using Tensor = BasicTensor<void *>;
using ConstTensor = BasicTensor<const void *>;

// Where a call runs: a device's ordinal, and a cudaStream_t of it.
struct Place {
  std::int32_t device = 0;
  void *stream = nullptr;
};

struct Options {
  bool causal = false;
  std::optional<std::int32_t> window_left, window_right;  // none: no end
  float scale = 0;                                        // 0: 1 / sqrt(dim of q)
  float softcap = 0;
  const float *sink = nullptr;  // (heads) on the device
  const float *alibi_slopes = nullptr;
  std::int64_t alibi_batch_stride = 0;
  bool empty_lse_negative = false;  // lse of rows that see no key: -inf and not +inf
  bool deterministic = false;       // of gradients
  std::int32_t num_splits = 0;
  std::int32_t family = FA_FAMILY_BEST;
  float dropout = 0;  // with it:
  std::uint64_t seed = 0, offset = 0;
  std::uint64_t *rng_state = nullptr;  // (2) on the device; written forward, read backward
};

// The sequences of a packed batch: device pointers to (batch + 1) starts, and the longest lengths.
struct Sequences {
  std::int32_t batch;
  const std::int32_t *cu_seqlens_q;
  std::int32_t longest_q;
  const std::int32_t *cu_seqlens_k;
  std::int32_t longest_k;
};

// Keys and values of past calls: contiguous ones, or pages.
struct Cache {
  const std::int32_t *lengths = nullptr;      // (batch) keys in the cache; nullptr: all
  const std::int32_t *block_table = nullptr;  // (batch, pages of a sequence)
  std::int64_t block_table_stride = 0;
  std::int32_t pages_each = 0;  // of a sequence, with block_table
};

namespace detail {

inline fa_tensor raw(const Tensor &t) {
  return fa_make_tensor(t.data(), t.strides()[0], t.strides()[1], t.strides()[2]);
}

inline fa_const_tensor raw(const ConstTensor &t) {
  return fa_make_const_tensor(t.data(), t.strides()[0], t.strides()[1], t.strides()[2]);
}

// An input in a field that other calls write to; fa_fwd does without k_new not.
inline fa_tensor raw_input(const ConstTensor &t) {
  return fa_make_tensor(const_cast<void *>(t.data()), t.strides()[0], t.strides()[1],
                        t.strides()[2]);
}

inline void require_shape(const char *name, const ConstTensor &t, const Shape &shape,
                          const ConstTensor &like) {
  const Shape &is = t.shape();
  const bool same = is.batch == shape.batch && is.rows == shape.rows && is.heads == shape.heads &&
                    is.dim == shape.dim;
  const auto text = [](const Shape &s) {
    return "(" + std::to_string(s.batch) + ", " + std::to_string(s.rows) + ", " +
           std::to_string(s.heads) + ", " + std::to_string(s.dim) + ")";
  };
  if (!same) {
    throw Error({FA_STATUS_INVALID,
                 std::string(name) + " is " + text(is) + "; the others make it " + text(shape)});
  }
  if (t.dtype() != like.dtype()) {
    throw Error({FA_STATUS_INVALID, std::string(name) + " has another dtype than q"});
  }
}

inline std::int32_t number(std::int64_t value) {
  if (value < INT32_MIN || value > INT32_MAX) {
    throw Error({FA_STATUS_INVALID, "a size is " + std::to_string(value) + "; sizes have 32 bits"});
  }
  return static_cast<std::int32_t>(value);
}

inline std::uint32_t flag_if(bool is_set, std::uint32_t flag) { return is_set ? flag : 0; }

template <typename Args>
void set_common(Args &args, const Place &place, const ConstTensor &q, const ConstTensor &k,
                const ConstTensor &v, const Options &options) {
  args.device = place.device;
  args.stream = place.stream;
  args.dtype = static_cast<std::int32_t>(q.dtype());
  args.heads_q = number(q.shape().heads);
  args.heads_k = number(k.shape().heads);
  args.head_dim = number(q.shape().dim);
  args.head_dim_v = v.shape().dim == q.shape().dim ? 0 : number(v.shape().dim);
  args.flags = flag_if(options.causal, FA_FLAG_CAUSAL) |
               flag_if(options.window_left.has_value(), FA_FLAG_WINDOW_LEFT) |
               flag_if(options.window_right.has_value(), FA_FLAG_WINDOW_RIGHT) |
               flag_if(options.empty_lse_negative, FA_FLAG_EMPTY_LSE_NEG_INF);
  args.window_left = options.window_left.value_or(0);
  args.window_right = options.window_right.value_or(0);
  args.scale = options.scale;
  args.softcap = options.softcap;
  args.dropout = options.dropout;
  args.family = options.family;
  args.sink = options.sink;
  args.alibi_slopes = options.alibi_slopes;
  args.alibi_batch_stride = options.alibi_batch_stride;
  args.rng_state = options.rng_state;
}

inline void set_forward(fa_fwd_args &args, const ConstTensor &q, const ConstTensor &k,
                        const ConstTensor &v, const Tensor &o, float *lse, const Options &options) {
  const Shape &qs = q.shape(), &ks = k.shape(), &vs = v.shape();
  require_shape("k", k, {ks.batch, ks.rows, ks.heads, qs.dim}, q);
  require_shape("v", v, {ks.batch, ks.rows, ks.heads, vs.dim}, q);
  require_shape("o", o, {qs.batch, qs.rows, qs.heads, vs.dim}, q);
  args.q = raw(q);
  args.k = raw_input(k);
  args.v = raw_input(v);
  args.o = raw(o);
  args.lse = lse;
  args.num_splits = options.num_splits;
  args.seed = options.seed;
  args.offset = options.offset;
}

template <typename Args>
void set_dense_sizes(Args &args, const ConstTensor &q, const ConstTensor &k) {
  if (q.shape().batch != k.shape().batch) {
    throw Error({FA_STATUS_INVALID, "q has batch " + std::to_string(q.shape().batch) + " and k " +
                                        std::to_string(k.shape().batch)});
  }
  args.batch = number(q.shape().batch);
  args.seqlen_q = number(q.shape().rows);
  args.seqlen_k = number(k.shape().rows);
}

template <typename Args>
void set_sequences(Args &args, const ConstTensor &q, const ConstTensor &k, const Sequences &of) {
  args.batch = of.batch;
  args.seqlen_q = of.longest_q;
  args.seqlen_k = of.longest_k;
  args.total_q = q.shape().rows;
  args.total_k = k.shape().rows;
  args.cu_seqlens_q = of.cu_seqlens_q;
  args.cu_seqlens_k = of.cu_seqlens_k;
}

}  // namespace detail

// Attention over a dense batch. lse: (batch, heads, rows of q). Throws an Error where shapes disagree.
inline fa_fwd_args dense(const Place &place, const ConstTensor &q, const ConstTensor &k,
                         const ConstTensor &v, const Tensor &o, float *lse,
                         const Options &options = {}) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  detail::set_common(args, place, q, k, v, options);
  detail::set_dense_sizes(args, q, k);
  detail::set_forward(args, q, k, v, o, lse, options);
  return args;
}

// Attention over sequences that lie one after the other. lse: (heads, rows of q).
inline fa_fwd_args packed(const Place &place, const ConstTensor &q, const ConstTensor &k,
                          const ConstTensor &v, const Tensor &o, float *lse, const Sequences &of,
                          const Options &options = {}) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  detail::set_common(args, place, q, k, v, options);
  detail::set_sequences(args, q, k, of);
  detail::set_forward(args, q, k, v, o, lse, options);
  return args;
}

// Attention over a cache: k and v are (batch, capacity, heads, dim), or (pages, page size, heads, dim)
// with a block table.
inline fa_fwd_args cached(const Place &place, const ConstTensor &q, const ConstTensor &k,
                          const ConstTensor &v, const Tensor &o, float *lse, const Cache &cache,
                          const Options &options = {}) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  detail::set_common(args, place, q, k, v, options);
  args.batch = detail::number(q.shape().batch);
  args.seqlen_q = detail::number(q.shape().rows);
  args.seqlen_k = detail::number(
      cache.block_table != nullptr ? cache.pages_each * k.shape().rows : k.shape().rows);
  detail::set_forward(args, q, k, v, o, lse, options);
  args.cache_seqlens = cache.lengths;
  args.block_table = cache.block_table;
  args.block_table_stride = cache.block_table_stride;
  args.page_size = cache.block_table != nullptr ? detail::number(k.shape().rows) : 0;
  return args;
}

// Outputs of the forward pass, and the gradients of and to them.
struct Gradients {
  ConstTensor o, d_o;
  Tensor dq, dk, dv;
  const float *lse;
  float *softmax_d;              // fa_bwd_args.softmax_d says how large; nullptr: not wanted
  const float *d_lse = nullptr;  // nullptr: no gradient of lse
  float *d_sink = nullptr;       // nullptr: not wanted
};

// Gradients of dense(); with sequences, those of packed().
inline fa_bwd_args backward(const Place &place, const ConstTensor &q, const ConstTensor &k,
                            const ConstTensor &v, const Gradients &of, const Options &options = {},
                            const std::optional<Sequences> &sequences = std::nullopt) {
  fa_bwd_args args = FA_BWD_ARGS_INIT;
  detail::set_common(args, place, q, k, v, options);
  if (sequences) {
    detail::set_sequences(args, q, k, *sequences);
  } else {
    detail::set_dense_sizes(args, q, k);
  }
  const Shape o{q.shape().batch, q.shape().rows, q.shape().heads, v.shape().dim};
  detail::require_shape("o", of.o, o, q);
  detail::require_shape("d_o", of.d_o, o, q);
  detail::require_shape("dq", of.dq, q.shape(), q);
  detail::require_shape("dk", of.dk, k.shape(), q);
  detail::require_shape("dv", of.dv, v.shape(), q);
  args.flags |= detail::flag_if(options.deterministic, FA_FLAG_DETERMINISTIC);
  args.q = detail::raw(q);
  args.k = detail::raw(k);
  args.v = detail::raw(v);
  args.o = detail::raw(of.o);
  args.d_o = detail::raw(of.d_o);
  args.dq = detail::raw(of.dq);
  args.dk = detail::raw(of.dk);
  args.dv = detail::raw(of.dv);
  args.lse = of.lse;
  args.softmax_d = of.softmax_d;
  args.d_lse = of.d_lse;
  args.d_sink = of.d_sink;
  return args;
}

// Memory of an allocator that is given back at the end.
template <typename Allocator>
class Workspace {
 public:
  Workspace(Allocator &allocator, std::size_t bytes, void *stream)
      : allocator_(allocator),
        bytes_(bytes),
        stream_(stream),
        data_(bytes == 0 ? nullptr : allocator.allocate(bytes, stream)) {}
  ~Workspace() {
    if (data_ != nullptr) allocator_.deallocate(data_, bytes_, stream_);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;

  void *data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  Allocator &allocator_;
  std::size_t bytes_;
  void *stream_;
  void *data_;
};

// Bytes of workspace of a call.
inline std::pair<Outcome, std::uint64_t> workspace_of(const fa_fwd_args &args) {
  std::uint64_t bytes = 0;
  const fa_status status = fa_fwd_workspace(&args, &bytes, nullptr);
  return {outcome_of(status), bytes};
}

inline std::pair<Outcome, std::uint64_t> workspace_of(const fa_bwd_args &args) {
  std::uint64_t bytes = 0;
  const fa_status status = fa_bwd_workspace(&args, &bytes);
  return {outcome_of(status), bytes};
}

// Enqueues a call with a workspace that it has already.
inline Outcome enqueue(const fa_fwd_args &args) { return outcome_of(fa_fwd(&args)); }
inline Outcome enqueue(const fa_bwd_args &args) { return outcome_of(fa_bwd(&args)); }

// Enqueues a call with a workspace of the allocator. Throws what the allocator throws.
template <typename Args, typename Allocator>
Outcome try_run(Args args, Allocator &&allocator) {
  const auto [answer, bytes] = workspace_of(args);
  if (!answer) return answer;
  Workspace<std::remove_reference_t<Allocator>> workspace(allocator, bytes, args.stream);
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  return enqueue(args);
}

// The same; throws an Error where the library refuses.
template <typename Args, typename Allocator>
void run(const Args &args, Allocator &&allocator) {
  check(try_run(args, allocator));
}

// Loads the kernels of a call ahead of time.
inline Outcome preload(const fa_fwd_args &args) { return outcome_of(fa_preload(&args, nullptr)); }
inline Outcome preload(const fa_bwd_args &args) { return outcome_of(fa_preload(nullptr, &args)); }

// Which family runs a call on args.device, and why none before it does.
struct Choice {
  Outcome outcome;
  std::string family, why_not;
};

inline Choice choice_of(fa_status status, const fa_choice &choice) {
  if (status != FA_STATUS_OK) return {outcome_of(status), "", ""};
  return {{}, choice.name, choice.why_not};
}

inline Choice supports(const fa_fwd_args &args) {
  fa_choice choice = FA_CHOICE_INIT;
  const fa_status status = fa_supports(args.device, &args, &choice);
  return choice_of(status, choice);
}

inline Choice supports(const fa_bwd_args &args) {
  fa_choice choice = FA_CHOICE_INIT;
  const fa_status status = fa_bwd_supports(args.device, &args, &choice);
  return choice_of(status, choice);
}

}  // namespace flashattention

#endif  // FLASH_ATTENTION_HPP
