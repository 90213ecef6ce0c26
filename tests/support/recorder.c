/* A libflashattention that computes nothing: it keeps the arguments of each call, and answers as it is told. */
#include <flash_attention.h>
#include <string.h>

#define KEPT 8

static unsigned char kept[KEPT][1024];
static int32_t count;
static fa2_status answer;
static uint64_t workspace;

static fa2_status keep(const void *args) {
  uint32_t size;
  memcpy(&size, args, sizeof size);
  memset(kept[count % KEPT], 0, sizeof kept[0]);
  memcpy(kept[count++ % KEPT], args, size);
  return answer;
}

FA2_API void recorder_set(fa2_status status, uint64_t workspace_bytes) {
  count = 0;
  answer = status;
  workspace = workspace_bytes;
}
FA2_API int32_t recorder_count(void) { return count; }
FA2_API const void *recorder_call(int32_t index) { return kept[index % KEPT]; }

FA2_API fa2_status fa2_fwd_workspace(const fa2_fwd_args *args, uint64_t *bytes, int32_t *splits) {
  (void)args;
  (void)splits;
  *bytes = workspace;
  return FA2_OK;
}
FA2_API fa2_status fa2_bwd_workspace(const fa2_bwd_args *args, uint64_t *bytes) {
  (void)args;
  *bytes = workspace;
  return FA2_OK;
}
FA2_API fa2_status fa2_fwd(const fa2_fwd_args *args) { return keep(args); }
FA2_API fa2_status fa2_bwd(const fa2_bwd_args *args) { return keep(args); }
FA2_API const char *fa2_last_error(void) { return answer ? "dropout is 0.1; the selection 'training' has it" : ""; }
