// Upstream's own flash_api.cpp, compiled over fake_torch.h and called with our arguments, to see
// what it would have launched.
#include <flash_attention.h>

#include <flash_api.cpp>

namespace {

at::Tensor view(const fa2_tensor &tensor, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
                c10::ScalarType type) {
  return {tensor.data,
          {batch, rows, heads, dim},
          {tensor.batch_stride, tensor.row_stride, tensor.head_stride, 1},
          type};
}

}  // namespace

// mha_fwd as flash_attn_interface.py calls it: 0, or 1 when upstream raised.
extern "C" int stub_upstream_fwd(const fa2_fwd_args *a, float scale) {
  const auto type = a->dtype == FA2_BF16 ? torch::kBFloat16 : torch::kFloat16;
  at::Tensor q = view(a->q, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  const at::Tensor k = view(a->k, a->batch, a->seqlen_k, a->heads_k, a->head_dim, type);
  const at::Tensor v = view(a->v, a->batch, a->seqlen_k, a->heads_k, a->head_dim, type);
  std::optional<at::Tensor> out = view(a->o, a->batch, a->seqlen_q, a->heads_q, a->head_dim, type);
  std::optional<at::Tensor> alibi;
  if (a->alibi_slopes != nullptr) {
    auto *slopes = const_cast<float *>(a->alibi_slopes);
    alibi = a->alibi_batch_stride == 0
                ? at::Tensor(slopes, {a->heads_q}, {1}, at::kFloat)
                : at::Tensor(slopes, {a->batch, a->heads_q}, {a->alibi_batch_stride, 1}, at::kFloat);
  }
  at::cuda::CUDAStream::fake = static_cast<cudaStream_t>(a->stream);
  try {
    FLASH_NAMESPACE::mha_fwd(q, k, v, out, alibi, a->dropout, scale, (a->flags & FA2_CAUSAL) != 0,
                             (a->flags & FA2_WINDOW_LEFT) != 0 ? a->window_left : -1,
                             (a->flags & FA2_WINDOW_RIGHT) != 0 ? a->window_right : -1, a->softcap,
                             false, std::nullopt);
    return 0;
  } catch (const std::runtime_error &) {
    return 1;
  }
}
