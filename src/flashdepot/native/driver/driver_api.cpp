#include "driver_api.h"

#include "fa_config.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace flashdepot::driver {
namespace {

DriverApi api;
std::atomic<bool> ready;

#ifdef _WIN32
using Library = HMODULE;

// From the system's folder only: a file of that name next to a program is not NVIDIA's.
Library open_library() {
  return LoadLibraryExA("nvcuda.dll", nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32);
}
void close_library(Library library) { FreeLibrary(library); }
void *find(Library library, const char *name) {
  return reinterpret_cast<void *>(GetProcAddress(library, name));
}
#else
using Library = void *;

Library open_library() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }
void close_library(Library library) { dlclose(library); }
void *find(Library library, const char *name) { return dlsym(library, name); }
#endif

template <typename Function>
bool fill(Entry<Function> &member, Library library, const char *name) {
  void *found = find(library, name);
  member.set(reinterpret_cast<Function>(found));
  return found != nullptr;
}

// cuda.h gives some functions a newer name by a macro; the name in quotes must be that one.
#define FLASHDEPOT_QUOTE(name) #name

bool fill_all(Library library) {
  bool all = true;
#define FLASHDEPOT_FILL(name) all = fill(api.name, library, FLASHDEPOT_QUOTE(name)) && all;
  FLASHDEPOT_DRIVER_FUNCTIONS(FLASHDEPOT_FILL)
#undef FLASHDEPOT_FILL
  return all;
}

// A library runs on every driver of its CUDA major version and newer ones (CUDA Compatibility
// guide, "minor version compatibility").
bool is_new_enough() {
  int version = 0;
  return api.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
         version / 1000 >= FA_CONFIG_CUDA / 1000;
}

cudaError_t start() {
  const Library library = open_library();
  if (library == nullptr) {
    return cudaErrorInsufficientDriver;  // as the runtime says it
  }
  if (!fill_all(library) || !is_new_enough()) {
    close_library(library);
    return cudaErrorInsufficientDriver;
  }
  if (const CUresult result = api.cuInit(0); result != CUDA_SUCCESS) {
    close_library(library);
    return as_error(result);
  }
  return cudaSuccess;  // the driver stays: it cannot be unloaded once it has started
}

}  // namespace

const DriverApi *driver_api(cudaError_t *code) {
  if (!ready.load(std::memory_order_acquire)) {
    *code = start();
    if (*code != cudaSuccess) {
      return nullptr;
    }
    ready.store(true, std::memory_order_release);
  }
  return &api;
}

}  // namespace flashdepot::driver
