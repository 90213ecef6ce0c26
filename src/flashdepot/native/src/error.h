// How a call fails: a text for fa_last_error, and a status that every function hands up to the
// entry point. Nothing is thrown, so that the library needs no C++ run time.
#pragma once

#include <cuda_runtime_api.h>
#include <flash_attention.h>

#if defined(__GNUC__)
#define FLASHDEPOT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define FLASHDEPOT_PRINTF(text, first)
#endif

// Returns the status of an expression from the calling function unless it is FA_STATUS_OK.
#define FLASHDEPOT_TRY(expression)                                          \
  do {                                                                      \
    if (const fa_status tried = (expression); tried != FA_STATUS_OK) return tried; \
  } while (false)

namespace flashdepot {

// Keeps the text for fa_last_error and returns the status.
[[nodiscard]] FLASHDEPOT_PRINTF(2, 3) fa_status refuse(fa_status status, const char *format, ...);

// FA_STATUS_OK for cudaSuccess. Else keeps the text for that error of `call`, with what to do about it,
// and returns FA_STATUS_CUDA.
[[nodiscard]] fa_status check_cuda(cudaError_t code, const char *call);

}  // namespace flashdepot

#define FLASHDEPOT_TRY_CUDA(call) FLASHDEPOT_TRY(::flashdepot::check_cuda((call), #call))
