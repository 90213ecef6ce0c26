#include "fa4/speed.h"

namespace flashdepot::fa4 {
namespace {

// On an H200 fa4 was faster than FA2 at each of 52 points, forward and backward: head dims 64 to
// 256, causal or not, sequences of 512 to 16384, 128 tiles or more (benchmarks/fa4.md).
bool was_measured(const DeviceFacts &gpu) { return gpu.major == 9 && gpu.minor == 0; }

const char *of_any_pass(const DeviceFacts &gpu) {
  return was_measured(gpu) ? nullptr : "its kernels for this GPU have not been proved on one";
}

// Tiles of query rows, each of which one SM works on with all of its keys.
std::int64_t tiles_of(const Problem &problem) {
  constexpr std::int64_t kRows = 128;
  const bool decodes = problem.seqlen_q == 1;  // query heads that share keys are one tile
  const std::int64_t heads = decodes ? problem.heads_k : problem.heads_q;
  return problem.batch * heads * ((problem.seqlen_q + kRows - 1) / kRows);
}

// FA2 divides long keys of few tiles among idle SMs (split-KV), which no kernel of fa4 for Hopper
// does. Twice as fast on half of the SMs is no faster.
bool leaves_sms_idle(const Problem &problem, const DeviceFacts &gpu) {
  constexpr std::int32_t kLongKeys = 1024;
  return !problem.packed() && problem.seqlen_k >= kLongKeys &&
         2 * tiles_of(problem) < gpu.multiprocessors;
}

}  // namespace

const char *drawback(const ForwardCall &call, const DeviceFacts &gpu) {
  if (const char *unmeasured = of_any_pass(gpu)) {
    return unmeasured;
  }
  return leaves_sms_idle(call.problem, gpu)
             ? "it does not divide the keys of few queries among the GPU's SMs"
             : nullptr;
}

const char *drawback(const BackwardCall &, const DeviceFacts &gpu) { return of_any_pass(gpu); }

}  // namespace flashdepot::fa4
