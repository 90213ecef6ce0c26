// How an entry point fails: a text for fa_last_error, then an exception that carries the status
// to guarded(), which turns it into the return value. Success pays nothing for it.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <flash_attention.h>

#if defined(__GNUC__)
#define FLASHDEPOT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define FLASHDEPOT_PRINTF(text, first)
#endif

namespace flashdepot {

struct Refusal {
  fa_status status;
};

// Keeps the text for fa_last_error and throws Refusal{status}.
[[noreturn]] FLASHDEPOT_PRINTF(2, 3) void refuse(fa_status status, const char *format, ...);

// Keeps the text for an error of the CUDA runtime, with what to do about it. Returns FA_CUDA.
fa_status report(const CudaFailure &failure) noexcept;

// Keeps the text for an exception that no code here throws. Returns FA_INTERNAL.
fa_status report_unknown_exception() noexcept;

template <typename Body>
fa_status guarded(Body body) noexcept {
  try {
    body();
    return FA_OK;
  } catch (const Refusal &refusal) {
    return refusal.status;
  } catch (const CudaFailure &failure) {
    return report(failure);
  } catch (...) {
    return report_unknown_exception();
  }
}

}  // namespace flashdepot
