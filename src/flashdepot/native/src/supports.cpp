// fa_supports and fa_bwd_supports.
#include "arguments.h"
#include "checks.h"
#include "family.h"

namespace flashdepot {
namespace {

// What fa_choice.why_not points to.
thread_local Text why_not;

template <typename Call, typename Args>
fa_status supports(std::int32_t device, const Args *args, fa_choice *answer) {
  const std::uint32_t size = answer == nullptr ? 0 : answer->size;
  if (answer != nullptr) {
    FLASHDEPOT_TRY(check_size(size, "fa_choice", sizeof *answer));
    why_not.clear();
    write_struct(answer, size, fa_choice{size, 0, "", ""});
  }
  Call call;
  FLASHDEPOT_TRY(read_call(args, call));
  Choice choice{nullptr, answer == nullptr ? nullptr : &why_not};
  if (device == -1) {
    FLASHDEPOT_TRY(choose(call, nullptr, choice));
  } else {
    FLASHDEPOT_TRY(check_device(device));
    DeviceFacts gpu;
    FLASHDEPOT_TRY(choose_on(device, call, gpu, choice));
  }
  if (answer != nullptr) {
    const fa_family &family = choice.family->contents;
    write_struct(answer, size, fa_choice{size, family.family, family.name, why_not.c_str()});
  }
  return FA_STATUS_OK;
}

}  // namespace
}  // namespace flashdepot

fa_status fa_supports(int32_t device, const fa_fwd_args *args, fa_choice *choice) noexcept {
  return flashdepot::supports<flashdepot::ForwardCall>(device, args, choice);
}

fa_status fa_bwd_supports(int32_t device, const fa_bwd_args *args, fa_choice *choice) noexcept {
  return flashdepot::supports<flashdepot::BackwardCall>(device, args, choice);
}
