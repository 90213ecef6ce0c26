/* Carrying a call out, and what happens when that fails. */
#include "mha_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flash_attention_candle.h"

#if defined(_MSC_VER)
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL __thread
#endif

#if defined(FLASHDEPOT_MSVC)
/* Where Microsoft's C runtime has vsnprintf and fprintf as functions: its headers have them inline. */
__attribute__((section(".drectve"), used)) static const char needs[] =
    " /DEFAULTLIB:legacy_stdio_definitions ";
#endif

/* From the CUDA runtime, or what the library has in its place. cudaError_t is an int there, and 0
   is success. */
int cudaGetDevice(int *device);
int cudaDeviceSynchronize(void);
int cudaMallocAsync(void **data, size_t bytes, void *stream);
int cudaFreeAsync(void *data, void *stream);
int cudaMemsetAsync(void *data, int value, size_t bytes, void *stream);
const char *cudaGetErrorString(int code);
#if defined(FLASHDEPOT_CANDLE_KERNELS)
int cudaGetLastError(void);
#endif

static THREAD_LOCAL int32_t last_status;
static THREAD_LOCAL char last_error[1024];

int32_t fa_candle_last_status(void) { return last_status; }

const char *fa_candle_last_error(void) { return last_error; }

static fa_status fail(fa_status status, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(last_error, sizeof last_error, format, values);
  va_end(values);
  return status;
}

/* 0, or the status of the CUDA call that failed. */
static fa_status cuda(const char *name, int code) {
  return code == 0
             ? FA_STATUS_OK
             : fail(FA_STATUS_CUDA, "%s answered with error %d, %s", name, code, cudaGetErrorString(code));
}

static fa_status library(fa_status status) {
  return status == FA_STATUS_OK ? FA_STATUS_OK : fail(status, "%s", fa_last_error());
}

static fa_status forward_with_workspace(fa_fwd_args *args, uint64_t bytes) {
  fa_status status =
      cuda("cudaMallocAsync", cudaMallocAsync(&args->workspace, bytes, args->stream));
  int freed;
  if (status != FA_STATUS_OK) {
    return status;
  }
  args->workspace_bytes = bytes;
  status = library(fa_fwd(args));
  freed = cudaFreeAsync(args->workspace, args->stream);
  return status != FA_STATUS_OK ? status : cuda("cudaFreeAsync", freed);
}

static int waits_for_the_device(const mha_call *call) {
  const char *wish = getenv("FLASHDEPOT_CANDLE_SYNCHRONIZE");
  return call->arguments < 45 && wish != NULL && strcmp(wish, "1") == 0;
}

static fa_status run(const mha_call *call) {
  fa_fwd_args args;
  uint64_t bytes = 0;
  int device = 0;
  const int waits = waits_for_the_device(call);
  fa_status status = flashdepot_mha_arguments(call, &args, last_error, sizeof last_error);
  if (status == FA_STATUS_OK) {
    status = library(fa_supports(-1, &args, NULL));
  }
  if (status == FA_STATUS_OK) {
    status = cuda("cudaGetDevice", cudaGetDevice(&device));
    args.device = device;
  }
  if (status == FA_STATUS_OK && args.block_table != NULL) {
    status = library(fa_fwd_workspace(&args, &bytes, NULL));
  }
  if (status == FA_STATUS_OK && waits) {
    status = cuda("cudaDeviceSynchronize", cudaDeviceSynchronize());
  }
  if (status == FA_STATUS_OK) {
    status = bytes > 0 ? forward_with_workspace(&args, bytes) : library(fa_fwd(&args));
  }
  if (status == FA_STATUS_OK && waits) {
    status = cuda("cudaDeviceSynchronize", cudaDeviceSynchronize());
  }
  return status;
}

static int may_continue(void) {
  const char *wish = getenv("FLASHDEPOT_CANDLE_ON_ERROR");
  return wish == NULL || wish[0] == '\0' || strcmp(wish, "nan") == 0;
}

static void settle(const mha_call *call, fa_status status) {
  uint64_t bytes;
  int filled;
  last_status = status;
  if (last_status == FA_STATUS_OK) {
    return;
  }
  bytes = flashdepot_mha_output_bytes(call);
  filled = may_continue() && bytes > 0 && call->o != NULL &&
           /* Every bit set is a NaN in both 16-bit types. */
           cudaMemsetAsync(call->o, 0xff, bytes, call->stream) == 0;
  fprintf(stderr, "run_mha (flashdepot): %s: %s; %s\n", fa_status_string(last_status), last_error,
          filled ? "the output was filled with NaN" : "aborting");
  if (!filled) {
    abort();
  }
}

void flashdepot_mha_run(const mha_call *call) { settle(call, run(call)); }

#if defined(FLASHDEPOT_CANDLE_KERNELS)
int flashdepot_candle_begins(const mha_call *call) {
  const fa_status status = flashdepot_candle_checks(call, last_error, sizeof last_error);
  if (status != FA_STATUS_OK || call->b == 0 || call->h == 0 || call->seqlen_q == 0) {
    settle(call, status);
    return 0;
  }
  (void)cudaGetLastError(); /* of somebody else's, earlier */
  return 1;
}

/* candle's code checks no error itself. */
void flashdepot_candle_ended(const mha_call *call) {
  settle(call, cuda("a launch of candle's own kernel", cudaGetLastError()));
}
#endif
