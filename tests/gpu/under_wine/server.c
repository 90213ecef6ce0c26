// A Windows program that loads flashattention.dll and makes the calls that it reads from its standard
// input, over copies of the caller's buffers:
//
//     attention_server.exe Z:\path\flashattention.dll
//
// A request is `struct request`, the bytes of the arguments, for each buffer its size, for each
// pointer among the arguments `struct pointer`, and the bytes of the buffers. The answer is `struct
// answer`, its text, and of a pass the bytes of the buffers.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define FA_STATIC
#include "flash_attention.h"

enum operation { CONTENTS, SUPPORTS, FWD_WORKSPACE, FWD, BWD_WORKSPACE, BWD };

struct request {
  int32_t operation;
  int32_t device;
  uint32_t arguments;  // bytes
  uint32_t buffers;
  uint32_t pointers;
};

struct pointer {
  uint32_t field;  // offset among the arguments
  uint32_t buffer;
  uint64_t offset;
};

struct answer {
  int32_t status;
  int32_t splits;
  uint64_t bytes;
  uint32_t text;
  uint32_t passed;  // 1: the buffers follow
};

typedef uint64_t address;
static struct {
  int (*cuInit)(unsigned);
  int (*cuDriverGetVersion)(int *);
  int (*cuDeviceGet)(int *, int);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuCtxSetCurrent)(void *);
  int (*cuCtxSynchronize)(void);
  int (*cuMemAlloc_v2)(address *, size_t);
  int (*cuMemFree_v2)(address);
  int (*cuMemcpyHtoD_v2)(address, const void *, size_t);
  int (*cuMemcpyDtoH_v2)(void *, address, size_t);
} driver;

static struct {
  fa_status (*fa_build_info)(fa_info *);
  fa_status (*fa_supports)(int32_t, const fa_fwd_args *, fa_choice *);
  fa_status (*fa_fwd_workspace)(const fa_fwd_args *, uint64_t *, int32_t *);
  fa_status (*fa_fwd)(const fa_fwd_args *);
  fa_status (*fa_bwd_workspace)(const fa_bwd_args *, uint64_t *);
  fa_status (*fa_bwd)(const fa_bwd_args *);
  const char *(*fa_last_error)(void);
} library;

static void fail(const char *what, long code) {
  fprintf(stderr, "attention_server: %s: %ld\n", what, code);
  exit(3);
}

static void need(int result, const char *what) {
  if (result != 0) {
    fail(what, result);
  }
}

static void *find(HMODULE module, const char *name) {
  void *found = (void *)GetProcAddress(module, name);
  if (found == NULL) {
    fail(name, (long)GetLastError());
  }
  return found;
}

// Returns 0 where the input ends before the first byte.
static int take(void *to, size_t bytes) {
  size_t had = 0;
  while (had < bytes) {
    const size_t left = bytes - had;
    DWORD got = 0;
    if (!ReadFile(GetStdHandle(STD_INPUT_HANDLE), (char *)to + had, left < 1 << 20 ? (DWORD)left : 1 << 20,
                  &got, NULL) || got == 0) {
      if (had == 0) {
        return 0;
      }
      fail("the input ends in the middle", (long)had);
    }
    had += got;
  }
  return 1;
}

static void take_rest(void *to, size_t bytes) {
  if (!take(to, bytes)) {
    fail("the input ends within a request, bytes missing", (long)bytes);
  }
}

static void give(const void *from, size_t bytes) {
  size_t gone = 0;
  while (gone < bytes) {
    const size_t left = bytes - gone;
    DWORD wrote = 0;
    if (!WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), (const char *)from + gone,
                   left < 1 << 20 ? (DWORD)left : 1 << 20, &wrote, NULL)) {
      fail("cannot write", (long)GetLastError());
    }
    gone += wrote;
  }
}

static void load(const char *path) {
  HMODULE module = LoadLibraryExA("nvcuda.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
  if (module == NULL) {
    fail("nvcuda.dll does not load", (long)GetLastError());
  }
#define DRIVER(name) *(void **)&driver.name = find(module, #name)
  DRIVER(cuInit);
  DRIVER(cuDriverGetVersion);
  DRIVER(cuDeviceGet);
  DRIVER(cuDevicePrimaryCtxRetain);
  DRIVER(cuCtxSetCurrent);
  DRIVER(cuCtxSynchronize);
  DRIVER(cuMemAlloc_v2);
  DRIVER(cuMemFree_v2);
  DRIVER(cuMemcpyHtoD_v2);
  DRIVER(cuMemcpyDtoH_v2);
  module = LoadLibraryA(path);
  if (module == NULL) {
    fail(path, (long)GetLastError());
  }
#define LIBRARY(name) *(void **)&library.name = find(module, #name)
  LIBRARY(fa_build_info);
  LIBRARY(fa_supports);
  LIBRARY(fa_fwd_workspace);
  LIBRARY(fa_fwd);
  LIBRARY(fa_bwd_workspace);
  LIBRARY(fa_bwd);
  LIBRARY(fa_last_error);
}

static void enter_device(void) {
  void *context = NULL;
  int version = 0, device = 0;
  need(driver.cuInit(0), "cuInit");
  need(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  need(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
  need(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  need(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  fprintf(stderr, "attention_server: driver %d\n", version);
}

// What fa_build_info says, as lines of a word and numbers.
static const char *contents(fa_status *status) {
  static char text[1 << 16];
  char *end = text;
  fa_info info = {.size = sizeof info};
  *status = library.fa_build_info(&info);
  if (*status != FA_STATUS_OK) {
    return library.fa_last_error();
  }
  end += sprintf(end, "version %d\nflashdepot %s\ncuda %d\n", info.version, info.flashdepot, info.cuda);
  for (int n = 0; n < info.families_count; n++) {
    const fa_family *f = (const fa_family *)((const char *)info.families + n * info.family_size);
    end += sprintf(end, "family %d\nfeatures %u\nupstream %s\n", f->family, f->features, f->upstream);
    for (int i = 0; i < f->sass_count; i++) {
      end += sprintf(end, "sass %d\n", f->sass[i]);
    }
    for (int i = 0; i < f->head_dims_count; i++) {
      end += sprintf(end, "head_dim %d\n", f->head_dims[i]);
    }
    for (int i = 0; i < f->units_count; i++) {
      const fa_unit *u = (const fa_unit *)((const char *)f->units + i * f->unit_size);
      end += sprintf(end, "unit %d %d %d %d\n", u->pass, u->dtype, u->head_dim, u->causal);
    }
  }
  return text;
}

// Runs a pass over copies of the buffers, which the caller gets back.
static fa_status run(const struct request *request, void *arguments, const struct pointer *pointers,
                     const uint64_t *sizes, char *bytes) {
  address *copies = calloc(request->buffers + 1, sizeof *copies);
  size_t at = 0;
  for (uint32_t i = 0; i < request->buffers; at += sizes[i++]) {
    need(driver.cuMemAlloc_v2(&copies[i], sizes[i]), "cuMemAlloc");
    need(driver.cuMemcpyHtoD_v2(copies[i], bytes + at, sizes[i]), "cuMemcpyHtoD");
  }
  for (uint32_t i = 0; i < request->pointers; i++) {
    const address there = copies[pointers[i].buffer] + pointers[i].offset;
    memcpy((char *)arguments + pointers[i].field, &there, sizeof there);
  }
  const fa_status status =
      request->operation == FWD ? library.fa_fwd(arguments) : library.fa_bwd(arguments);
  need(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  at = 0;
  for (uint32_t i = 0; i < request->buffers; at += sizes[i++]) {
    need(driver.cuMemcpyDtoH_v2(bytes + at, copies[i], sizes[i]), "cuMemcpyDtoH");
    need(driver.cuMemFree_v2(copies[i]), "cuMemFree");
  }
  free(copies);
  return status;
}

static void serve(const struct request *request) {
  struct answer answer = {0};
  const char *text = "";
  void *arguments = calloc(1, request->arguments + 1);
  uint64_t *sizes = calloc(request->buffers + 1, sizeof *sizes);
  struct pointer *pointers = calloc(request->pointers + 1, sizeof *pointers);
  uint64_t total = 0;
  take_rest(arguments, request->arguments);
  take_rest(sizes, request->buffers * sizeof *sizes);
  take_rest(pointers, request->pointers * sizeof *pointers);
  for (uint32_t i = 0; i < request->buffers; i++) {
    total += sizes[i];
  }
  char *bytes = malloc(total + 1);
  if (bytes == NULL) {
    fail("no memory for buffers", (long)total);
  }
  take_rest(bytes, total);
  switch (request->operation) {
    case CONTENTS:
      text = contents(&answer.status);
      break;
    case SUPPORTS:
      answer.status = library.fa_supports(request->device, arguments, NULL);
      break;
    case FWD_WORKSPACE:
      answer.status = library.fa_fwd_workspace(arguments, &answer.bytes, &answer.splits);
      break;
    case BWD_WORKSPACE:
      answer.status = library.fa_bwd_workspace(arguments, &answer.bytes);
      break;
    case FWD:
    case BWD:
      answer.status = run(request, arguments, pointers, sizes, bytes);
      answer.passed = 1;
      break;
    default:
      fail("unknown operation", request->operation);
  }
  if (answer.status != FA_STATUS_OK) {
    text = library.fa_last_error();
  }
  answer.text = (uint32_t)strlen(text);
  give(&answer, sizeof answer);
  give(text, answer.text);
  if (answer.passed) {
    give(bytes, total);
  }
  free(bytes);
  free(pointers);
  free(sizes);
  free(arguments);
}

int main(int count, char **words) {
  struct request request;
  if (count != 2) {
    fprintf(stderr, "usage: attention_server.exe PATH-OF-flashattention.dll\n");
    return 2;
  }
  load(words[1]);
  enter_device();
  while (take(&request, sizeof request)) {
    serve(&request);
  }
  return 0;
}
