// The toy's part of the C layer: forward, fp16, head dim 32, on any GPU. Its one kernel is compiled
// by the family's own action.
#include "buffers.h"
#include "error.h"
#include "fa_config.h"
#include "family.h"

extern "C" void toy_kernel(void *o, void *stream);

namespace flashdepot::toy {
namespace {

static_assert(TOY_CONFIG_UNITS == 1, "the header counts the units that were asked for");

constexpr std::int32_t kNumber = 1;  // one that no family of the ABI has
constexpr std::int32_t kSass[] = {80, 90};
constexpr std::int32_t kHeadDims[] = {32};
constexpr fa_unit kUnits[] = {{FA_PASS_FWD, FA_DTYPE_FP16, 32, 0}};

Fit fits(const ForwardCall &call, const DeviceFacts *, Text *why) {
  const Problem &problem = call.problem;
  if (problem.dtype != FA_DTYPE_FP16 || problem.head_dim != 32) {
    return decline(why, Fit::unsupported, "head_dim is %d, and its one kernel is fp16 32",
                   problem.head_dim);
  }
  return Fit::serves;
}

Fit fits_backward(const BackwardCall &, const DeviceFacts *, Text *why) {
  return decline(why, Fit::unsupported, "it has no backward pass");
}

template <typename Call>
Inside inside(const Call &, const DeviceFacts &) {
  return {false, false};
}

template <typename Call>
fa_status workspace(const Call &, Workspace &needs) {
  needs = {0, 1};
  return FA_STATUS_OK;
}

fa_status launch(const ForwardCall &call, const DeviceFacts &) {
  toy_kernel(call.args.o.data, call.args.stream);
  return check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status launch_backward(const BackwardCall &, const DeviceFacts &) {
  return refuse(FA_STATUS_UNSUPPORTED, "toy has no backward pass");
}

}  // namespace

extern const Family family = {
    {kNumber, 0, "toy", "0.1", kSass, kHeadDims, kUnits, 2, 1, 1, sizeof(fa_unit)},
    {fits, inside<ForwardCall>, workspace<ForwardCall>, launch},
    {fits_backward, inside<BackwardCall>, workspace<BackwardCall>, launch_backward},
};

}  // namespace flashdepot::toy
