#include <flash_attention_wheel.h>

#include <cstdio>

#ifdef IN_NAMESPACE
using flash::mha_fwd;
#endif

int main() {
  at::Tensor q{40};
  std::optional<at::Tensor> out = q;
  const std::vector<at::Tensor> results = mha_fwd(q, at::Tensor{2}, out, 5.0f, true, -1, std::nullopt);
  std::printf("%zu: %d %d\n", results.size(), results[0].value, results[1].value);
  return 0;
}
