// Calls the mha_fwd of a published wheel (flash-attn 2.6 to 2.8, vllm-flash-attn 2.6) from C++, and compares it with
// torch's own attention. The parameters of others differ: flash_attention_wheel.h, written by 'flashdepot link wheel',
// has them.
#include <ATen/ATen.h>
#include <flash_attention_wheel.h>

#include <cmath>
#include <cstdio>
#include <exception>

namespace flash {}  // where newer wheels have it
using namespace flash;

int main() {
  try {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kHalf);
    at::Tensor q = at::randn({2, 128, 4, 64}, options), k = at::randn({2, 128, 4, 64}, options);
    const at::Tensor v = at::randn({2, 128, 4, 64}, options);
    std::optional<at::Tensor> out, alibi_slopes;
    const float scale = 1.0f / std::sqrt(64.0f);
    const at::Tensor o = mha_fwd(q, k, v, out, alibi_slopes, 0.0f, scale, false, -1, -1, 0.0f, false, std::nullopt)[0];

    const auto heads_first = [](const at::Tensor &t) { return t.to(at::kFloat).transpose(1, 2); };
    const at::Tensor weights = (heads_first(q).matmul(heads_first(k).transpose(2, 3)) * scale).softmax(-1);
    const at::Tensor expected = weights.matmul(heads_first(v)).transpose(1, 2);
    const double error = (o.to(at::kFloat) - expected).abs().max().item<double>();
    std::printf("largest error %.2e\n", error);
    return error < 2e-3 ? 0 : 1;
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 3;
  }
}
