/* libcuda.so.1 over the host's memory, with what candle's programs ask of it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) { return (int)flags; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)1;
  return device;
}
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuCtxSynchronize(void) { return 0; }
int cuStreamCreate(void **stream, unsigned flags) {
  *stream = (void *)2;
  return flags != 1;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  *address = (uint64_t)(uintptr_t)malloc(bytes);
  return *address == 0;
}
int cuMemFree_v2(uint64_t address) {
  free((void *)(uintptr_t)address);
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}
