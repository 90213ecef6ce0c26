/* A libflashattention that computes nothing: it keeps the arguments of each call, and answers as it is set to. */
#include <flash_attention.h>
#include <string.h>

#define KEPT 8

static unsigned char kept[KEPT][1024];
static int32_t count;
static fa_status answer;
static uint64_t workspace;

static fa_status keep(const void *args) {
  uint32_t size;
  memcpy(&size, args, sizeof size);
  memset(kept[count % KEPT], 0, sizeof kept[0]);
  memcpy(kept[count++ % KEPT], args, size);
  return answer;
}

FA_API void recorder_set(fa_status status, uint64_t workspace_bytes) {
  count = 0;
  answer = status;
  workspace = workspace_bytes;
}
FA_API int32_t recorder_count(void) { return count; }
FA_API const void *recorder_call(int32_t index) { return kept[index % KEPT]; }

FA_API fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) {
  (void)args;
  (void)splits;
  *bytes = workspace;
  return FA_STATUS_OK;
}
FA_API fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) {
  (void)args;
  *bytes = workspace;
  return FA_STATUS_OK;
}
FA_API fa_status fa_fwd(const fa_fwd_args *args) { return keep(args); }
FA_API fa_status fa_bwd(const fa_bwd_args *args) { return keep(args); }
FA_API const char *fa_last_error(void) {
  return answer ? "dropout is 0.1; the selection 'training' has it" : "";
}
