// fa_preload: the same calls, of which nothing runs.
#include <cuda_runtime_api.h>

#include "checks.h"
#include "family.h"

#if __has_include("load_only.h")
#include "load_only.h"
#endif

namespace flashdepot {
namespace {

#if __has_include("load_only.h")
using driver::load_only;
constexpr bool kCanPreload = true;
#else
void load_only(bool) {}
constexpr bool kCanPreload = false;  // NVIDIA's runtime has no such switch
#endif

// Whoever looks at an address or a stride before a launch finds one that a caller could have set.
// Nobody follows it.
void *anywhere() { return reinterpret_cast<void *>(std::uintptr_t{1} << 20); }

template <typename Tensor>
void place(Tensor &tensor, std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
  tensor = {anywhere(), rows * heads * head_dim, heads * head_dim, head_dim, 0, 0};
}

template <typename Args>
void place_common(Args &args) {
  const std::int32_t dim_v = args.head_dim_v != 0 ? args.head_dim_v : args.head_dim;
  place(args.q, args.seqlen_q, args.heads_q, args.head_dim);
  place(args.k, args.seqlen_k, args.heads_k, args.head_dim);
  place(args.v, args.seqlen_k, args.heads_k, dim_v);
  place(args.o, args.seqlen_q, args.heads_q, dim_v);
  args.lse = static_cast<float *>(anywhere());
  args.workspace = anywhere();
  args.workspace_bytes = UINT64_MAX;
}

void place_buffers(fa_fwd_args &args) {
  place_common(args);
  args.rng_state = static_cast<std::uint64_t *>(anywhere());
}

void place_buffers(fa_bwd_args &args) {
  place_common(args);
  args.d_o = args.o;
  place(args.dq, args.seqlen_q, args.heads_q, args.head_dim);
  place(args.dk, args.seqlen_k, args.heads_k, args.head_dim);
  place(args.dv, args.seqlen_k, args.heads_k,
        args.head_dim_v != 0 ? args.head_dim_v : args.head_dim);
  args.softmax_d = static_cast<float *>(anywhere());
  args.rng_state = static_cast<std::uint64_t *>(anywhere());
}

template <typename Call, typename Args>
fa_status preload(const Args *args) {
  Call call;
  FLASHDEPOT_TRY(read_call(args, call));
  FLASHDEPOT_TRY(check_device(call.args.device));
  cudaGetLastError();  // what is left over from others is theirs
  Choice choice{};
  DeviceFacts gpu;
  FLASHDEPOT_TRY(choose_on(call.args.device, call, gpu, choice));
  if (!kCanPreload) {
    return refuse(FA_STATUS_UNSUPPORTED,
                  "this library is linked with NVIDIA's CUDA runtime, which loads kernels with "
                  "their first launch only; make a call ahead of time instead");
  }
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(call.args.device));
  place_buffers(call.args);
  load_only(true);
  const fa_status status = run(call, gpu, *choice.family);
  load_only(false);
  return status;
}

}  // namespace
}  // namespace flashdepot

fa_status fa_preload(const fa_fwd_args *forward, const fa_bwd_args *backward) noexcept {
  using namespace flashdepot;
  if (forward != nullptr) {
    FLASHDEPOT_TRY(preload<ForwardCall>(forward));
  }
  return backward == nullptr ? FA_STATUS_OK : preload<BackwardCall>(backward);
}
