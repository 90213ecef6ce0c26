// A second family of kernels, as the seam in family.h sees it: it runs dense bf16 problems of head
// dim 64 on GPUs of compute capability 9.0, has a speed of its own opinion, and only writes down
// what it was asked to do.
#include <cstdint>

#include "buffers.h"
#include "error.h"
#include "family.h"
#include "stub.h"

namespace flashdepot::fa4 {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::int32_t kSass[] = {90};
constexpr std::int32_t kHeadDims[] = {64};
constexpr fa_unit kUnits[] = {{FA_PASS_FWD, FA_DTYPE_BF16, 64, 0}};

template <typename Call>
Fit fits(const Call &call, const DeviceFacts *gpu, Text *why) {
  const Problem &problem = call.problem;
  if (problem.dropout()) {
    return decline(why, Fit::unsupported, "dropout is %g, which it does not have",
                   static_cast<double>(call.args.dropout));
  }
  if (problem.head_dim != 64) {
    return decline(why, Fit::unsupported, "head_dim is %d, and it has 64", problem.head_dim);
  }
  if (gpu != nullptr && (gpu->major != 9 || gpu->minor != 0)) {
    return decline(why, Fit::no_kernel_for_arch, "device %d is no sm_90", gpu->ordinal);
  }
  if (problem.seqlen_q == 1) {
    return decline(why, Fit::slower, "one query a head is slower here");
  }
  return Fit::serves;
}

template <typename Call>
Inside inside(const Call &, const DeviceFacts &) {
  return {false, false};
}

template <typename Call>
fa_status workspace(const Call &, Workspace &needs) {
  needs = {kBytes, 1};
  return FA_STATUS_OK;
}

template <typename Call>
fa_status launch(const Call &call, const DeviceFacts &) {
  FLASHDEPOT_TRY(check_workspace(call.args.workspace_bytes, kBytes, "the workspace function"));
  stub_record_fill(call.args.workspace, 4, kBytes, call.args.stream);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

}  // namespace

extern const Family family = {
    {FA_FAMILY_FA4, 0, "fa4", "4.0.0", kSass, kHeadDims, kUnits, 1, 1, 1, sizeof(fa_unit)},
    {fits<ForwardCall>, inside<ForwardCall>, workspace<ForwardCall>, launch<ForwardCall>},
    {fits<BackwardCall>, inside<BackwardCall>, workspace<BackwardCall>, launch<BackwardCall>},
};

}  // namespace flashdepot::fa4
