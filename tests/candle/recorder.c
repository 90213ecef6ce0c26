/* What run_mha stands on, without a GPU: fa_ functions and a CUDA runtime that write down what they
 * are asked, and fail on demand. */
#include <flash_attention.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static char calls[4096];
static char failing[64];
static fa_fwd_args last_args;
static uint64_t workspace_bytes;

static int note(const char *name, void *stream, const void *data, uint64_t bytes) {
  const size_t used = strlen(calls);
  snprintf(calls + used, sizeof calls - used, "%s%s(%llu,%llu,%llu)", used ? " " : "", name,
           (unsigned long long)(size_t)stream, (unsigned long long)(size_t)data,
           (unsigned long long)bytes);
  return strcmp(failing, name) == 0 ? 2 : 0;
}

API void recorder_reset(const char *fails, uint64_t workspace) {
  calls[0] = '\0';
  snprintf(failing, sizeof failing, "%s", fails);
  workspace_bytes = workspace;
  memset(&last_args, 0, sizeof last_args);
}
API const char *recorder_calls(void) { return calls; }
API const fa_fwd_args *recorder_args(void) { return &last_args; }

#ifndef REAL_LIBRARY /* which brings its own */
API fa_status fa_supports(int32_t device, const fa_fwd_args *args, fa_choice *choice) {
  (void)device;
  (void)args;
  (void)choice;
  return strcmp(failing, "fa_supports") == 0 ? FA_STATUS_UNSUPPORTED : FA_STATUS_OK;
}
API fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) {
  (void)args;
  (void)splits;
  *bytes = workspace_bytes;
  return FA_STATUS_OK;
}
API fa_status fa_fwd(const fa_fwd_args *args) {
  last_args = *args;
  return note("fa_fwd", args->stream, args->workspace, args->workspace_bytes) == 0 ? FA_STATUS_OK
                                                                                   : FA_STATUS_CUDA;
}
API const char *fa_last_error(void) { return "text of the library"; }
API const char *fa_status_string(fa_status status) {
  return status == FA_STATUS_INVALID       ? "FA_STATUS_INVALID"
         : status == FA_STATUS_UNSUPPORTED ? "FA_STATUS_UNSUPPORTED"
                                    : "FA_STATUS_CUDA";
}
#endif

API int cudaGetDevice(int *device) {
  *device = 3;
  return strcmp(failing, "cudaGetDevice") == 0 ? 100 : 0;
}
API int cudaDeviceSynchronize(void) { return note("cudaDeviceSynchronize", NULL, NULL, 0); }
API int cudaMallocAsync(void **data, size_t bytes, void *stream) {
  *data = (void *)(size_t)0x70000;
  return note("cudaMallocAsync", stream, NULL, bytes);
}
API int cudaFreeAsync(void *data, void *stream) { return note("cudaFreeAsync", stream, data, 0); }
API int cudaMemsetAsync(void *data, int value, size_t bytes, void *stream) {
  return note(value == 0xff ? "cudaMemsetAsync" : "wrong value", stream, data, bytes);
}
API const char *cudaGetErrorString(int code) { return code == 100 ? "no CUDA-capable device" : "out of memory"; }
