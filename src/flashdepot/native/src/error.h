// How an entry point fails: a text for fa2_last_error, then an exception that carries the status
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
  fa2_status status;
};

// Keeps the text for fa2_last_error and throws Refusal{status}.
[[noreturn]] FLASHDEPOT_PRINTF(2, 3) void refuse(fa2_status status, const char *format, ...);

// Keeps the text for an error of the CUDA runtime, with what to do about it. Returns FA2_CUDA.
fa2_status report(const CudaFailure &failure) noexcept;

// Keeps the text for an exception that no code here throws. Returns FA2_INTERNAL.
fa2_status report_unknown_exception() noexcept;

template <typename Body>
fa2_status guarded(Body body) noexcept {
  try {
    body();
    return FA2_OK;
  } catch (const Refusal &refusal) {
    return refusal.status;
  } catch (const CudaFailure &failure) {
    return report(failure);
  } catch (...) {
    return report_unknown_exception();
  }
}

}  // namespace flashdepot
