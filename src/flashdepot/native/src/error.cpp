#include "error.h"

#include <cstdarg>
#include <cstdio>

#include "fa2_config.h"

namespace flashdepot {
namespace {

// Plain bytes: a thread_local with a constructor would cost every call a check.
thread_local char last_error[1024];

FLASHDEPOT_PRINTF(1, 2) void keep(const char *format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
}

// First driver branch that runs a toolkit's programs: CUDA Compatibility guide, "minor version
// compatibility".
constexpr int driver_floor(int cuda) {
  return cuda >= 13000 ? 580 : cuda >= 12000 ? 525 : 450;
}

const char *advice(cudaError_t code) {
  switch (code) {
    case cudaErrorNoDevice:
      return "; nvidia-smi lists the GPUs of this machine, CUDA_VISIBLE_DEVICES hides some of them";
    case cudaErrorInitializationError:
      return "; CUDA cannot be used in a process forked from one that used it: spawn instead";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "; `flashdepot check` says which GPUs this file is for";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
      return "; a kernel that ran earlier in this process failed, and CUDA reports it late: "
             "compute-sanitizer finds it";
    default:
      return "";
  }
}

}  // namespace

void refuse(fa_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  throw Refusal{status};
}

fa_status report(const CudaFailure &failure) noexcept {
  const char *name = cudaGetErrorName(failure.code);
  const char *text = cudaGetErrorString(failure.code);
  if (failure.code == cudaErrorInsufficientDriver) {
    keep(
        "%s: %s (%d: %s); there is no NVIDIA driver, or it is older than %d, which CUDA %d.%d "
        "needs: nvidia-smi shows it",
        failure.call, name, failure.code, text, driver_floor(FA2_CONFIG_CUDA),
        FA2_CONFIG_CUDA / 1000, FA2_CONFIG_CUDA % 1000 / 10);
  } else {
    keep("%s: %s (%d: %s)%s", failure.call, name, failure.code, text, advice(failure.code));
  }
  return FA_CUDA;
}

fa_status report_unknown_exception() noexcept {
  keep(
      "an exception that libflashattention does not know reached its boundary; nothing more is "
      "known of it. Please report this with the arguments of the call");
  return FA_INTERNAL;
}

}  // namespace flashdepot

const char *fa_last_error(void) noexcept { return flashdepot::last_error; }

const char *fa_status_string(fa_status status) noexcept {
  switch (status) {
    case FA_OK:
      return "FA_OK";
    case FA_INVALID:
      return "FA_INVALID";
    case FA_UNSUPPORTED:
      return "FA_UNSUPPORTED";
    case FA_NO_KERNEL_FOR_ARCH:
      return "FA_NO_KERNEL_FOR_ARCH";
    case FA_WORKSPACE_TOO_SMALL:
      return "FA_WORKSPACE_TOO_SMALL";
    case FA_CUDA:
      return "FA_CUDA";
    case FA_INTERNAL:
      return "FA_INTERNAL";
    default:
      return "unknown fa_status";
  }
}
