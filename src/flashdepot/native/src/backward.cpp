// fa2_bwd and fa2_bwd_workspace: the ABI, and the answer that this release has for them.
#include "arguments.h"

namespace flashdepot {
namespace {

[[noreturn]] void refuse_backward(const fa2_bwd_args *args) {
  const fa2_bwd_args known = read_args(
      args, "fa2_bwd_args", FA2_CAUSAL | FA2_WINDOW_LEFT | FA2_WINDOW_RIGHT | FA2_DETERMINISTIC);
  if (known.reserved0 != 0) {
    refuse(FA2_INVALID, "reserved0 is %d; allowed: 0", known.reserved0);
  }
  refuse(FA2_UNSUPPORTED, "this release of flashdepot does not implement the backward pass");
}

}  // namespace
}  // namespace flashdepot

fa2_status fa2_bwd_workspace(const fa2_bwd_args *args, uint64_t *) noexcept {
  return flashdepot::guarded([&] { flashdepot::refuse_backward(args); });
}

fa2_status fa2_bwd(const fa2_bwd_args *args) noexcept {
  return flashdepot::guarded([&] { flashdepot::refuse_backward(args); });
}
