#include "error.h"

#include <cstdarg>
#include <cstdio>

#include "fa_config.h"

namespace flashdepot {
namespace {

// Plain bytes: a thread_local with a constructor would cost every call a check.
thread_local char last_error[1024];

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

fa_status refuse(fa_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return status;
}

fa_status check_cuda(cudaError_t code, const char *call) {
  if (code == cudaSuccess) {
    return FA_STATUS_OK;
  }
  const char *name = cudaGetErrorName(code);
  const char *text = cudaGetErrorString(code);
  if (code == cudaErrorInsufficientDriver) {
    return refuse(FA_STATUS_CUDA,
                  "%s: %s (%d: %s); there is no NVIDIA driver, or it is older than %s, which CUDA "
                  "%d.%d needs: nvidia-smi shows it",
                  call, name, code, text, FA_CONFIG_DRIVER, FA_CONFIG_CUDA / 1000,
                  FA_CONFIG_CUDA % 1000 / 10);
  }
  return refuse(FA_STATUS_CUDA, "%s: %s (%d: %s)%s", call, name, code, text, advice(code));
}

}  // namespace flashdepot

const char *fa_last_error(void) noexcept { return flashdepot::last_error; }

const char *fa_status_string(fa_status status) noexcept {
  switch (status) {
    case FA_STATUS_OK:
      return "FA_STATUS_OK";
    case FA_STATUS_INVALID:
      return "FA_STATUS_INVALID";
    case FA_STATUS_UNSUPPORTED:
      return "FA_STATUS_UNSUPPORTED";
    case FA_STATUS_NO_KERNEL_FOR_ARCH:
      return "FA_STATUS_NO_KERNEL_FOR_ARCH";
    case FA_STATUS_WORKSPACE_TOO_SMALL:
      return "FA_STATUS_WORKSPACE_TOO_SMALL";
    case FA_STATUS_CUDA:
      return "FA_STATUS_CUDA";
    case FA_STATUS_INTERNAL:
      return "FA_STATUS_INTERNAL";
    default:
      return "unknown fa_status";
  }
}
