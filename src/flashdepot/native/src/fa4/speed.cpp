#include "fa4/speed.h"

#include "divide.h"
#include "fa4/decoding.h"
#include "fa4/problem.h"
#include "fa_config.h"
#include "speed_table.h"

namespace flashdepot::fa4 {
namespace {

// Problems that FA2 was measured to be faster at (kernels/fa4/speed.csv).
struct Slower {
  std::int32_t arch;  // 10 * major + minor
  Kernel pass;
  std::int32_t head_dim;  // of the kernel
  Mask mask;
  Kind kind;
  std::int32_t fewest, most;       // query heads a key head
  std::int32_t shortest, longest;  // keys
};

#define ARCH(arch) arch,
#define SLOWER(arch, pass, head_dim, mask, kind, fewest, most, shortest, longest) \
  {arch, Kernel::pass, head_dim, Mask::mask, Kind::kind, fewest, most, shortest, longest},

// A last row that matches nothing, since either list may have no other.
constexpr std::int32_t kMeasured[] = {FA4_CONFIG_MEASURED(ARCH) 0};
constexpr Slower kSlower[] = {
    FA4_CONFIG_SLOWER(SLOWER){0, Kernel::fwd, 0, Mask::full, Kind::dense, 0, 0, 0, 0}};

std::int32_t arch_of(const DeviceFacts &gpu) { return gpu.major * 10 + gpu.minor; }

const char *of_any_call(const DeviceFacts &gpu) {
  for (const std::int32_t known : kMeasured) {
    if (known == arch_of(gpu)) {
      return nullptr;
    }
  }
  return is_in_table(arch_of(gpu)) ? nullptr : "its kernels for this GPU have not been measured on one";
}

const char *of_any_pass(const Problem &problem, const DeviceFacts &gpu, Kernel pass) {
  if (const char *unmeasured = of_any_call(gpu)) {
    return unmeasured;
  }
  const std::int32_t arch = arch_of(gpu);
  const std::int32_t head_dim = unit_head_dim(problem.head_dim);
  const Mask mask = mask_of(problem);
  const std::int32_t group = problem.heads_q / problem.heads_k;
  constexpr const char *kSlowerHere =
      "it was measured to be slower at this head dim, mask, length and number of heads";
  const Faster known = faster_by_table({arch, pass == Kernel::fwd ? FA_PASS_FWD : FA_PASS_BWD, head_dim,
                                        static_cast<std::int32_t>(mask),
                                        static_cast<std::int32_t>(problem.kind), group, problem.seqlen_k});
  if (known != Faster::unknown) {
    return known == Faster::fa2 ? kSlowerHere : nullptr;
  }
  for (const Slower &row : kSlower) {
    if (row.arch == arch && row.pass == pass && row.head_dim == head_dim && row.mask == mask &&
        row.kind == problem.kind && row.fewest <= group && group <= row.most &&
        row.shortest <= problem.seqlen_k && problem.seqlen_k <= row.longest) {
      return kSlowerHere;
    }
  }
  return nullptr;
}

// FA2 divides long keys of few tiles among idle SMs (split-KV), which of fa4's kernels for Hopper only
// those for few queries do. Twice as fast on half of the SMs is no faster.
bool leaves_sms_idle(const Problem &problem, const DeviceFacts &gpu) {
  constexpr std::int32_t kLongKeys = 1024;
  constexpr std::int64_t kRows = 128;  // of a tile, which one SM works on with all of its keys
  const std::int64_t tiles = problem.batch * problem.heads_q * divide_up(problem.seqlen_q, kRows);
  return !problem.packed() && problem.seqlen_k >= kLongKeys && 2 * tiles < gpu.multiprocessors;
}

}  // namespace

const char *drawback_of_decoding(const Problem &problem, const DeviceFacts &gpu) {
  if (const char *unmeasured = of_any_call(gpu)) {
    return unmeasured;
  }
  return has_few_queries(problem) ? nullptr : "it reads the keys again for every few of so many queries";
}

const char *drawback(const ForwardCall &call, const DeviceFacts &gpu) {
  if (const char *slower = of_any_pass(call.problem, gpu, Kernel::fwd)) {
    return slower;
  }
  return leaves_sms_idle(call.problem, gpu)
             ? "it does not divide the keys of few queries among the GPU's SMs"
             : nullptr;
}

const char *drawback(const BackwardCall &call, const DeviceFacts &gpu) {
  return of_any_pass(call.problem, gpu, Kernel::bwd);
}

}  // namespace flashdepot::fa4
