// The adapter beside torch's own attention, with a sink as one more key without a value.
#include <torch/torch.h>

#include <cstdio>

#include "attention.h"

int main() {
  if (!torch::cuda::is_available()) return 77;  // no GPU: left out
  torch::manual_seed(0);
  const auto half = torch::dtype(torch::kBFloat16).device(torch::kCUDA);
  const auto q = torch::randn({2, 256, 8, 64}, half), k = torch::randn({2, 256, 2, 64}, half);
  const auto v = torch::randn({2, 256, 2, 64}, half);
  const auto sink = torch::randn({8}, half.dtype(torch::kFloat));

  flashattention::Options options;
  options.sink = sink.data_ptr<float>();
  const auto [o, lse] = attention::forward(q, k, v, options);

  const auto wide = [](const torch::Tensor &t) { return t.to(torch::kDouble).transpose(1, 2); };
  const auto keys = wide(k).repeat_interleave(4, 1), values = wide(v).repeat_interleave(4, 1);
  const auto scores = torch::matmul(wide(q), keys.transpose(2, 3)) / 8.0;
  const auto sinks = sink.to(torch::kDouble).view({1, 8, 1, 1}).expand({2, 8, 256, 1});
  const auto weights = torch::softmax(torch::cat({scores, sinks}, 3), 3).narrow(3, 0, 256);
  const double error = (o.to(torch::kDouble) - torch::matmul(weights, values).transpose(1, 2)).abs().max().item<double>();
  std::printf("libtorch: largest error %.1e\n", error);
  return error < 2e-2 ? 0 : 1;
}
