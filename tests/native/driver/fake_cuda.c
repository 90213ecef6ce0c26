/* A driver without a GPU, libcuda.so.1 or nvcuda.dll: it keeps NVIDIA's rules about contexts,
 * captures, forks and libraries, and writes down what is launched, one JSON object a line. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define API __declspec(dllexport)
#define PROCESS GetCurrentProcessId()
#else
#include <unistd.h>
#define API __attribute__((visibility("default")))
#define PROCESS getpid()
#endif

typedef int result;
enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  CONTEXT_IS_DESTROYED = 709,
  CAPTURE_UNSUPPORTED = 900,
};

enum { DEVICES = 3, FIRST_DEVICE = 40 }; /* a device's handle is not its ordinal */
struct context {
  int device, primary, destroyed;
};
struct library {
  const void *code;
  uint64_t digest;
};
struct kernel {
  struct library *library;
  char name[600];
};

static struct context primaries[DEVICES];
static _Thread_local struct context *current;
static _Thread_local int capture_mode; /* 0 global, 1 thread local, 2 relaxed */
static int version = 13000, devices = DEVICES, capability = 80, capturing, initialized_by;
static _Atomic int loaded; /* threads that are first at the same time load and unload together */
static char failing[64];
static int failing_code;
static char *text;
static size_t used, room;
static struct {
  char part[100];
  size_t bytes;
} sizes[16];
static int sizes_count;

/* One thread at a time writes a line; the one that does may take it again. */
static int taken;
static _Thread_local int depth;
static void take(void) {
  if (depth++ == 0) {
    while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE)) continue;
  }
}
static void give(void) {
  if (--depth == 0) __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
}

static void say(const char *format, ...) {
  va_list list;
  take();
  if (room - used < 64 * 1024) {
    room = room * 2 + 256 * 1024;
    text = realloc(text, room);
  }
  va_start(list, format);
  used += (size_t)vsnprintf(text + used, room - used, format, list);
  va_end(list);
  give();
}

/* What tests set and read. */
API const char *fake_record(void) {
  say("");
  return text;
}
API void fake_clear(void) {
  used = 0;
  say("");
}
API void fake_version(int value) { version = value; }
API void fake_devices(int count) { devices = count; }
API void fake_fail(const char *function, int code) {
  snprintf(failing, sizeof failing, "%s", function);
  failing_code = code;
}
API void fake_capture(int on) { capturing = on; }
API int fake_loaded(void) { return loaded; }
API void fake_reset_primary(int ordinal) { primaries[ordinal].destroyed = 1; }
API void *fake_context(int ordinal) {
  struct context *made = calloc(1, sizeof *made);
  made->device = FIRST_DEVICE + ordinal;
  return made;
}
API void fake_enter(void *context) { current = context; }
API void *fake_current(void) { return current; }
API void *fake_primary(int ordinal) { return &primaries[ordinal]; }
API void fake_parameters(const char *part_of_the_name, size_t bytes) {
  snprintf(sizes[sizes_count].part, sizeof sizes[0].part, "%s", part_of_the_name);
  sizes[sizes_count++].bytes = bytes;
}

/* What a program that loads the driver itself cannot set comes from the environment, and goes to a
 * file: FAKE_CUDA_PARAMETERS "part:bytes,..", FAKE_CUDA_CAPABILITY "90", FAKE_CUDA_RECORD. */
static void read_environment(void) {
  const char *number = getenv("FAKE_CUDA_CAPABILITY");
  if (number != NULL) capability = atoi(number);
  const char *list = getenv("FAKE_CUDA_PARAMETERS");
  while (list != NULL && *list != '\0') {
    char part[100];
    unsigned bytes;
    if (sscanf(list, "%99[^:]:%u", part, &bytes) == 2) fake_parameters(part, bytes);
    list = strchr(list, ',');
    if (list != NULL) ++list;
  }
}
static void write_record(void) {
  const char *name = getenv("FAKE_CUDA_RECORD");
  FILE *file = name == NULL || used == 0 ? NULL : fopen(name, "ab");
  if (file == NULL) return;
  fwrite(text, 1, used, file);
  fclose(file);
  used = 0;
}

/* The answer of a function before it does anything. */
static result answer(const char *function) {
  if (initialized_by == 0) return NOT_INITIALIZED;
  if (initialized_by != (int)PROCESS) return NOT_INITIALIZED; /* a forked child */
  return strcmp(function, failing) == 0 ? failing_code : SUCCESS;
}
#define ANSWER                             \
  do {                                     \
    const result first = answer(__func__); \
    if (first != SUCCESS) return first;    \
  } while (0)
static result usable(void) {
  if (current == NULL) return INVALID_CONTEXT;
  return current->destroyed ? CONTEXT_IS_DESTROYED : SUCCESS;
}
#define IN_CONTEXT                        \
  do {                                    \
    const result inside = usable();       \
    if (inside != SUCCESS) return inside; \
  } while (0)

API result cuInit(unsigned flags) {
  int i;
  if (strcmp(failing, "cuInit") == 0) return failing_code;
  if (initialized_by == 0) {
    initialized_by = (int)PROCESS;
    read_environment();
    for (i = 0; i < DEVICES; ++i) primaries[i] = (struct context){FIRST_DEVICE + i, 1, 1};
  }
  return flags == 0 ? answer("cuInit") : INVALID_VALUE;
}
API result cuDriverGetVersion(int *value) {
  *value = version;
  return SUCCESS;
}
API result cuDeviceGetCount(int *count) {
  ANSWER;
  *count = devices;
  return SUCCESS;
}
API result cuDeviceGet(int *device, int ordinal) {
  ANSWER;
  if (ordinal < 0 || ordinal >= devices) return INVALID_DEVICE;
  *device = FIRST_DEVICE + ordinal;
  return SUCCESS;
}
API result cuDeviceGetAttribute(int *value, int attribute, int device) {
  ANSWER;
  if (device < FIRST_DEVICE || device >= FIRST_DEVICE + devices) return INVALID_DEVICE;
  switch (attribute) {
    case 16:
      *value = 108 + device - FIRST_DEVICE;
      return SUCCESS; /* multiprocessors */
    case 75:
      *value = capability / 10;
      return SUCCESS; /* compute capability */
    case 76:
      *value = capability % 10;
      return SUCCESS;
    case 81:
      *value = capability < 90 ? 167936 : 233472;
      return SUCCESS; /* shared memory of a multiprocessor */
    case 97:
      *value = capability < 90 ? 166912 : 232448;
      return SUCCESS; /* shared memory of a block that asks for more */
    default:
      return INVALID_VALUE;
  }
}
API result cuDevicePrimaryCtxRetain(void **context, int device) {
  ANSWER;
  primaries[device - FIRST_DEVICE].destroyed = 0;
  say("{\"call\":\"retain\",\"device\":%d}\n", device - FIRST_DEVICE);
  *context = &primaries[device - FIRST_DEVICE];
  return SUCCESS;
}
API result cuCtxGetCurrent(void **context) {
  ANSWER;
  *context = current;
  return SUCCESS;
}
API result cuCtxSetCurrent(void *context) {
  ANSWER;
  if (context != NULL && ((struct context *)context)->destroyed) return CONTEXT_IS_DESTROYED;
  current = context;
  return SUCCESS;
}
API result cuCtxGetDevice(int *device) {
  ANSWER;
  IN_CONTEXT;
  *device = current->device;
  return SUCCESS;
}
API result cuCtxSynchronize(void) {
  ANSWER;
  IN_CONTEXT;
  say("{\"call\":\"synchronize\"}\n");
  return SUCCESS;
}
API result cuThreadExchangeStreamCaptureMode(int *mode) {
  const int before = capture_mode;
  ANSWER;
  capture_mode = *mode;
  *mode = before;
  return SUCCESS;
}
API int fake_capture_mode(void) { return capture_mode; }

API result cuLibraryLoadData(void **library, const void *code, int *jit, void **jit_values,
                             unsigned jit_count, int *options, void **values, unsigned count) {
  struct library *made;
  uint16_t head;
  uint64_t bytes, i, digest = 14695981039346656037u;
  (void)jit, (void)jit_values, (void)options, (void)values;
  ANSWER;
  if (jit_count != 0 || count != 0) return INVALID_VALUE;
  if (capturing && capture_mode != 2) return CAPTURE_UNSUPPORTED;
  if (memcmp(code, "\x50\xed\x55\xba", 4) != 0) return 200; /* no fatbin */
  memcpy(&head, (const char *)code + 6, sizeof head);
  memcpy(&bytes, (const char *)code + 8, sizeof bytes);
  for (i = 0; i < bytes + head; ++i) {
    digest = (digest ^ ((const unsigned char *)code)[i]) * 1099511628211u;
  }
  made = calloc(1, sizeof *made);
  made->code = code;
  made->digest = digest;
  ++loaded;
  say("{\"call\":\"load\",\"digest\":\"%016" PRIx64 "\"}\n", digest);
  *library = made;
  return SUCCESS;
}
API result cuLibraryUnload(void *library) {
  ANSWER;
  --loaded;
  free(library);
  return SUCCESS;
}
API result cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  struct kernel *made;
  ANSWER;
  if (strstr(name, "missing") != NULL) return NOT_FOUND;
  made = calloc(1, sizeof *made);
  made->library = library;
  snprintf(made->name, sizeof made->name, "%s", name);
  *kernel = made;
  return SUCCESS;
}
API result cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
  (void)attribute, (void)kernel, (void)device;
  ANSWER;
  *value = 0;
  return SUCCESS;
}
API result cuKernelGetFunction(void **function, void *kernel) {
  ANSWER;
  *function = kernel;
  return SUCCESS;
}
API result cuFuncGetAttribute(int *value, int attribute, void *function) {
  (void)attribute, (void)function;
  ANSWER;
  *value = 0;
  return SUCCESS;
}
API result cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  ANSWER;
  say("{\"call\":\"attribute\",\"kernel\":\"%s\",\"attribute\":%d,\"value\":%d,\"device\":%d}\n",
      ((struct kernel *)kernel)->name, attribute, value, device - FIRST_DEVICE);
  return SUCCESS;
}

static result launch(const struct kernel *kernel, const unsigned *grid, const unsigned *block,
                     unsigned shared, const void *stream, void **arguments) {
  size_t bytes = 0, j;
  int i;
  IN_CONTEXT;
  for (i = 0; i < sizes_count; ++i) {
    if (strstr(kernel->name, sizes[i].part) != NULL) bytes = sizes[i].bytes;
  }
  take();
  say("{\"call\":\"launch\",\"kernel\":\"%s\",\"device\":%d,\"primary\":%d,", kernel->name,
      current->device - FIRST_DEVICE, current->primary);
  say("\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":%u,", grid[0], grid[1], grid[2],
      block[0], block[1], block[2], shared);
  say("\"stream\":%" PRIuPTR ",\"digest\":\"%016" PRIx64 "\",\"parameters\":\"", (uintptr_t)stream,
      kernel->library->digest);
  for (j = 0; j < bytes; ++j) say("%02x", ((const unsigned char *)arguments[0])[j]);
  say("\"}\n");
  write_record();
  give();
  return SUCCESS;
}
API result cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments,
                          void **extra) {
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  ANSWER;
  if (extra != NULL || gx == 0 || gy == 0 || gz == 0) return INVALID_VALUE;
  return launch(kernel, grid, block, shared, stream, arguments);
}
struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  void *attributes;
  unsigned attributes_count;
};
API result cuLaunchKernelEx(const struct launch_config *config, void *kernel, void **arguments,
                            void **extra) {
  ANSWER;
  if (extra != NULL) return INVALID_VALUE;
  say("{\"call\":\"attributes\",\"count\":%u}\n", config->attributes_count);
  return launch(kernel, config->grid, config->block, config->shared, config->stream, arguments);
}
API result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                  const uint64_t *extents, const uint64_t *strides,
                                  const unsigned *box, const unsigned *steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  ANSWER;
  (void)type, (void)extents, (void)strides, (void)box, (void)steps;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  memset(map, 0, 128);
  say("{\"call\":\"tensor map\",\"rank\":%u,\"address\":%" PRIuPTR "}\n", rank, (uintptr_t)address);
  return SUCCESS;
}
API result cuMemAllocAsync(uint64_t *data, size_t bytes, void *stream) {
  ANSWER;
  IN_CONTEXT;
  *data = 0x1000;
  say("{\"call\":\"allocate\",\"bytes\":%zu,\"stream\":%" PRIuPTR "}\n", bytes, (uintptr_t)stream);
  return SUCCESS;
}
API result cuMemFreeAsync(uint64_t data, void *stream) {
  ANSWER;
  IN_CONTEXT;
  say("{\"call\":\"free\",\"data\":%" PRIu64 ",\"stream\":%" PRIuPTR "}\n", data,
      (uintptr_t)stream);
  return SUCCESS;
}
API result cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  ANSWER;
  IN_CONTEXT;
  say("{\"call\":\"copy\",\"to\":%" PRIu64 ",\"from\":%" PRIu64 ",\"bytes\":%" PRIu64
      ",\"stream\":%" PRIuPTR "}\n",
      to, from, (uint64_t)bytes, (uintptr_t)stream);
  write_record();
  return SUCCESS;
}
API result cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
  ANSWER;
  IN_CONTEXT;
  say("{\"call\":\"fill\",\"to\":%" PRIu64 ",\"value\":%u,\"bytes\":%" PRIu64
      ",\"stream\":%" PRIuPTR "}\n",
      to, value, (uint64_t)bytes, (uintptr_t)stream);
  write_record();
  return SUCCESS;
}
