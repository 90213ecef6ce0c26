// fa_fwd, fa_fwd_workspace and fa_supports.
#include <cuda_runtime_api.h>

#include "arguments.h"
#include "buffers.h"
#include "checks.h"
#include "empty_keys.h"
#include "family.h"

namespace flashdepot {
namespace {

// What fa_choice.why_not points to.
thread_local Text why_not;

fa_status forward_without_keys(const ForwardCall &call) {
  const fa_fwd_args &args = call.args;
  const bool packed = call.problem.packed();
  return launch_empty_keys({args.o, args.lse, packed ? 1 : args.batch,
                            packed ? static_cast<std::int32_t>(args.total_q) : args.seqlen_q,
                            args.heads_q, args.head_dim},
                           static_cast<cudaStream_t>(args.stream));
}

fa_status forward(const fa_fwd_args *args) {
  ForwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  FLASHDEPOT_TRY(check_device(call.args.device));
  FLASHDEPOT_TRY(check_buffers(call.args, call.problem));
  Choice choice{};
  if (call.problem.no_queries()) {
    return choose(call, nullptr, choice);
  }

  cudaGetLastError();  // what is left over from others is theirs
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(call.args.device));
  return call.problem.no_keys() ? forward_without_keys(call)
                                : choice.family->forward.launch(call, gpu);
}

fa_status forward_workspace(const fa_fwd_args *args, std::uint64_t *bytes, std::int32_t *splits) {
  ForwardCall call;
  FLASHDEPOT_TRY(read_call(args, call));
  if (bytes == nullptr) {
    return refuse(FA_INVALID, "bytes is NULL; pass the address of a uint64_t");
  }
  FLASHDEPOT_TRY(check_device(call.args.device));
  Choice choice{};
  DeviceFacts gpu;
  const bool nothing = call.problem.no_queries() || call.problem.no_keys();
  FLASHDEPOT_TRY(!nothing && depends_on_gpu(call.args.family)
                     ? choose_on(call.args.device, call, gpu, choice)
                     : choose(call, nullptr, choice));
  Workspace needs{0, 1};
  if (!nothing) {
    FLASHDEPOT_TRY(choice.family->forward.workspace(call, needs));
  }
  *bytes = needs.bytes;
  if (splits != nullptr) {
    *splits = needs.splits;
  }
  return FA_OK;
}

fa_status supports(std::int32_t device, const fa_fwd_args *args, fa_choice *answer) {
  const std::uint32_t size = answer == nullptr ? 0 : answer->size;
  if (answer != nullptr) {
    FLASHDEPOT_TRY(check_size(size, "fa_choice", sizeof *answer));
    why_not.clear();
    write_struct(answer, size, fa_choice{size, 0, "", ""});
  }
  ForwardCall call;
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
  return FA_OK;
}

}  // namespace
}  // namespace flashdepot

fa_status fa_fwd(const fa_fwd_args *args) noexcept { return flashdepot::forward(args); }

fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) noexcept {
  return flashdepot::forward_workspace(args, bytes, splits);
}

fa_status fa_supports(int32_t device, const fa_fwd_args *args, fa_choice *choice) noexcept {
  return flashdepot::supports(device, args, choice);
}
