// Offers two of upstream's functions as its extension does, keeps for one of them the text that pybind11
// would, and takes a symbol of torch's libc10.
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#ifndef FLOAT
#define FLOAT "float"
#endif

extern "C" {
extern const char binding_text[] =
    "({torch.Tensor}, {torch.Tensor}, {Optional[torch.Tensor]}, {" FLOAT "}, {bool}, {int}, "
    "{Optional[torch.Generator]}) -> " RETURNS;
}

#ifdef IN_NAMESPACE
namespace flash {
#endif

std::vector<at::Tensor> mha_fwd(at::Tensor &q, const at::Tensor &k, std::optional<at::Tensor> &out, float scale,
                                bool causal, int window, std::optional<at::Generator> generator) {
  if (window < -1) {
    c10::detail::torchCheckFail("mha_fwd", "extension.cc", 1, std::string("window"));
  }
  return {at::Tensor{q.value + k.value}, at::Tensor{static_cast<int>(scale) + causal + out.has_value() +
                                                    generator.has_value()}};
}

std::vector<at::Tensor> mha_bwd(const at::Tensor &dout, double unknown) {
  return {at::Tensor{dout.value + static_cast<int>(unknown)}};
}

#ifdef IN_NAMESPACE
}  // namespace flash
#endif
