/* libcuda.so.1 for machines without a GPU: memory is malloc's, a stream does its work at once, and time passes. */
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) { return flags == 0 && !getenv("FAKE_NO_DEVICE") ? 0 : 100; }
int cuGetErrorString(int result, const char **text) {
  (void)result;
  *text = "a fake error";
  return 0;
}
int cuDeviceGet(int *device, int index) { return *device = index; }
int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  strncpy(name, "Fake GPU", (size_t)size);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  (void)device;
  *context = (void *)context;
  return 0;
}
int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) {
  *pointer = (unsigned long long)malloc(bytes);
  return *pointer ? 0 : 2;
}
int cuMemFree_v2(unsigned long long pointer) {
  free((void *)pointer);
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
  memcpy((void *)to, from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
  memcpy(to, (void *)from, bytes);
  return 0;
}
int cuStreamCreate(void **stream, unsigned flags) {
  *stream = (void *)stream;
  return (int)flags;
}
int cuStreamSynchronize(void *stream) { return stream ? 0 : 1; }
int cuEventCreate(void **event, unsigned flags) {
  *event = (void *)event;
  return (int)flags;
}
int cuEventRecord(void *event, void *stream) { return event && stream ? 0 : 1; }
int cuEventSynchronize(void *event) { return event ? 0 : 1; }
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  *milliseconds = 1000;
  return begin && end ? 0 : 1;
}
