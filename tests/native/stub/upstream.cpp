// Upstream's own flash_api.cpp, compiled over fake_torch.h and called with our arguments as
// flash_attn_interface.py calls it, to see what it would have launched.
#include <flash_attention.h>

#include <flash_api.cpp>

namespace {

using MaybeTensor = std::optional<at::Tensor>;
using MaybeConstTensor = std::optional<const at::Tensor>;

constexpr std::int64_t kPages = 97;  // in k and v; only the table knows
constexpr std::int64_t kMoreInCache = 3;

template <typename Args>
c10::ScalarType type_of(const Args *a) {
  return a->dtype == FA_DTYPE_BF16 ? torch::kBFloat16 : torch::kFloat16;
}

template <typename Tensor>
at::Tensor padded(const Tensor &tensor, std::int64_t batch, std::int64_t rows,
                  std::int64_t heads, std::int64_t dim, c10::ScalarType type) {
  return {const_cast<void *>(static_cast<const void *>(tensor.data)),
          {batch, rows, heads, dim},
          {tensor.batch_stride, tensor.row_stride, tensor.head_stride, 1},
          type};
}

template <typename Tensor>
at::Tensor packed(const Tensor &tensor, std::int64_t rows, std::int64_t heads, std::int64_t dim,
                  c10::ScalarType type) {
  return {const_cast<void *>(static_cast<const void *>(tensor.data)),
          {rows, heads, dim},
          {tensor.row_stride, tensor.head_stride, 1},
          type};
}

at::Tensor ints(const std::int32_t *data, std::int64_t count) {
  return {const_cast<std::int32_t *>(data), {count}, {1}, torch::kInt32};
}

template <typename Maybe>
Maybe maybe_ints(const std::int32_t *data, std::int64_t count) {
  return data == nullptr ? Maybe() : Maybe(ints(data, count));
}

template <typename Args>
MaybeTensor slopes(const Args *a) {
  if (a->alibi_slopes == nullptr) {
    return std::nullopt;
  }
  auto *data = const_cast<float *>(a->alibi_slopes);
  return a->alibi_batch_stride == 0
             ? at::Tensor(data, {a->heads_q}, {1}, at::kFloat)
             : at::Tensor(data, {a->batch, a->heads_q}, {a->alibi_batch_stride, 1}, at::kFloat);
}

template <typename Args>
int window_left(const Args *a) {
  return (a->flags & FA_FLAG_WINDOW_LEFT) != 0 ? a->window_left : -1;
}

template <typename Args>
int window_right(const Args *a) {
  return (a->flags & FA_FLAG_WINDOW_RIGHT) != 0 ? a->window_right : -1;
}

MaybeTensor block_table(const fa_fwd_args *a) {
  if (a->block_table == nullptr) {
    return std::nullopt;
  }
  const std::int64_t pages = (a->seqlen_k + a->page_size - 1) / a->page_size;
  return at::Tensor(const_cast<std::int32_t *>(a->block_table), {a->batch, pages},
                    {a->block_table_stride, 1}, torch::kInt32);
}

void fwd(const fa_fwd_args *a, float scale) {
  const auto type = type_of(a);
  at::Tensor q = padded(a->q, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  const at::Tensor k = padded(a->k, a->batch, a->seqlen_k, a->heads_k, a->head_dim, type);
  const at::Tensor v = padded(a->v, a->batch, a->seqlen_k, a->heads_k, a->head_dim, type);
  MaybeTensor out = padded(a->o, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  MaybeTensor alibi = slopes(a);
  FLASH_NAMESPACE::mha_fwd(q, k, v, out, alibi, a->dropout, scale, (a->flags & FA_FLAG_CAUSAL) != 0,
                           window_left(a), window_right(a), a->softcap, a->p_debug != nullptr,
                           std::nullopt);
}

void varlen_fwd(const fa_fwd_args *a, float scale) {
  const auto type = type_of(a);
  const auto keys = [&](const auto &tensor) {
    return a->block_table != nullptr
               ? padded(tensor, kPages, a->page_size, a->heads_k, a->head_dim, type)
               : packed(tensor, a->total_k, a->heads_k, a->head_dim, type);
  };
  at::Tensor q = packed(a->q, a->total_q, a->heads_q, a->head_dim, type);
  const at::Tensor k = keys(a->k);
  const at::Tensor v = keys(a->v);
  MaybeTensor out = packed(a->o, a->total_q, a->heads_q, a->head_dim, type);
  MaybeTensor used = maybe_ints<MaybeTensor>(a->seqused_k, a->batch);
  MaybeConstTensor leftpad = maybe_ints<MaybeConstTensor>(a->leftpad_k, a->batch);
  MaybeTensor table = block_table(a);
  MaybeTensor alibi = slopes(a);
  FLASH_NAMESPACE::mha_varlen_fwd(q, k, v, out, ints(a->cu_seqlens_q, a->batch + 1),
                                  ints(a->cu_seqlens_k, a->batch + 1), used, leftpad, table, alibi,
                                  a->seqlen_q, a->seqlen_k, a->dropout, scale, false,
                                  (a->flags & FA_FLAG_CAUSAL) != 0, window_left(a), window_right(a),
                                  a->softcap, a->p_debug != nullptr, std::nullopt);
}

void fwd_kvcache(const fa_fwd_args *a, float scale) {
  const auto type = type_of(a);
  const std::int64_t in_cache = a->batch + (a->cache_batch_idx != nullptr ? kMoreInCache : 0);
  const auto keys = [&](const auto &tensor) {
    return a->block_table != nullptr
               ? padded(tensor, kPages, a->page_size, a->heads_k, a->head_dim, type)
               : padded(tensor, in_cache, a->seqlen_k, a->heads_k, a->head_dim, type);
  };
  const auto fresh = [&](const auto &tensor) -> MaybeConstTensor {
    if (tensor.data == nullptr) {
      return std::nullopt;
    }
    return padded(tensor, a->batch, a->seqlen_new, a->heads_k, a->head_dim, type);
  };
  const auto rotary = [&](const void *data) -> MaybeConstTensor {
    if (data == nullptr) {
      return std::nullopt;
    }
    const std::int64_t half = a->rotary_dim / 2;
    return at::Tensor(const_cast<void *>(data), {a->rotary_seqlen, half}, {half, 1}, type);
  };
  at::Tensor q = padded(a->q, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  MaybeConstTensor k_new = fresh(a->k_new);
  MaybeConstTensor v_new = fresh(a->v_new);
  MaybeConstTensor lengths = maybe_ints<MaybeConstTensor>(a->cache_seqlens, a->batch);
  MaybeConstTensor cos = rotary(a->rotary_cos);
  MaybeConstTensor sin = rotary(a->rotary_sin);
  MaybeConstTensor index = maybe_ints<MaybeConstTensor>(a->cache_batch_idx, a->batch);
  MaybeConstTensor leftpad = maybe_ints<MaybeConstTensor>(a->leftpad_k, a->batch);
  MaybeTensor table = block_table(a);
  MaybeTensor alibi = slopes(a);
  MaybeTensor out;  // of its own: upstream refuses one where it swaps
  FLASH_NAMESPACE::mha_fwd_kvcache(
      q, keys(a->k), keys(a->v), k_new, v_new, lengths, cos, sin, index, leftpad, table, alibi, out,
      scale, (a->flags & FA_FLAG_CAUSAL) != 0, window_left(a), window_right(a), a->softcap,
      (a->flags & FA_FLAG_ROTARY_INTERLEAVED) != 0, a->num_splits);
}

void bwd(const fa_bwd_args *a, float scale) {
  const auto type = type_of(a);
  const bool is_packed = a->cu_seqlens_q != nullptr;
  const auto queries = [&](const auto &tensor) {
    return is_packed ? packed(tensor, a->total_q, a->heads_q, a->head_dim, type)
                     : padded(tensor, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  };
  const auto keys = [&](const auto &tensor) {
    return is_packed ? packed(tensor, a->total_k, a->heads_k, a->head_dim, type)
                     : padded(tensor, a->batch, a->seqlen_k, a->heads_k, a->head_dim, type);
  };
  const at::Tensor lse(const_cast<float *>(a->lse), {1}, {1}, at::kFloat);  // its shape is unseen
  MaybeTensor dq = queries(a->dq);
  MaybeTensor dk = keys(a->dk);
  MaybeTensor dv = keys(a->dv);
  MaybeTensor alibi = slopes(a);
  MaybeTensor rng_state;
  if (a->rng_state != nullptr) {
    rng_state = at::Tensor(const_cast<std::uint64_t *>(a->rng_state), {2}, {1}, torch::kInt64);
  }
  const bool causal = (a->flags & FA_FLAG_CAUSAL) != 0;
  const bool deterministic = (a->flags & FA_FLAG_DETERMINISTIC) != 0;
  if (is_packed) {
    FLASH_NAMESPACE::mha_varlen_bwd(
        queries(a->d_o), queries(a->q), keys(a->k), keys(a->v), queries(a->o), lse, dq, dk, dv,
        ints(a->cu_seqlens_q, a->batch + 1), ints(a->cu_seqlens_k, a->batch + 1), alibi,
        a->seqlen_q, a->seqlen_k, a->dropout, scale, false, causal, window_left(a),
        window_right(a), a->softcap, deterministic, std::nullopt, rng_state);
  } else {
    FLASH_NAMESPACE::mha_bwd(queries(a->d_o), queries(a->q), keys(a->k), keys(a->v), queries(a->o),
                             lse, dq, dk, dv, alibi, a->dropout, scale, causal, window_left(a),
                             window_right(a), a->softcap, deterministic, std::nullopt, rng_state);
  }
}

// 0, or 1 when upstream raised.
template <typename Args, typename Body>
int guarded(const Args *a, Body body) {
  at::cuda::CUDAStream::fake = static_cast<cudaStream_t>(a->stream);
  at::Tensor::allocations.clear();
  try {
    body();
    return 0;
  } catch (const std::runtime_error &) {
    return 1;
  }
}

}  // namespace

extern "C" {

// The entry point that runs arguments of their kind; `as_cache` for mha_fwd_kvcache.
int stub_upstream_fwd(const fa_fwd_args *a, float scale, int as_cache) {
  at::CUDAGeneratorImpl::state.seed.value = a->seed;
  at::CUDAGeneratorImpl::state.offset.value = a->offset;
  return guarded(a, [&] {
    a->cu_seqlens_q != nullptr ? varlen_fwd(a, scale)
    : as_cache != 0            ? fwd_kvcache(a, scale)
                               : fwd(a, scale);
  });
}

int stub_upstream_bwd(const fa_bwd_args *a, float scale) {
  return guarded(a, [&] { bwd(a, scale); });
}

// Bytes of the tensor that upstream allocated at an address in its last call; -1 if it did not.
std::int64_t stub_upstream_bytes(std::intptr_t address) {
  const auto found = at::Tensor::allocations.find(address);
  return found == at::Tensor::allocations.end() ? -1 : found->second;
}

}  // extern "C"
