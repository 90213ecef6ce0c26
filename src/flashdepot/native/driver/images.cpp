#include "images.h"

#include <cstdint>
#include <cstdlib>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#endif

namespace flashdepot::driver {

struct Image {
  const void *wrapper;
  const void *fatbin;
  int registrations;
  std::atomic<CUlibrary> library;
  Image *next;
};

namespace {

struct Kernel {
  const void *stub;
  const char *name;
  Image *image;
  std::atomic<CUkernel> handle;
};

// Open addressing by the address of the host function. It grows only while compilers' constructors
// run; a table that was outgrown stays until the end, so that a reader never loses the one it has.
struct Table {
  std::size_t capacity;  // a power of two
  std::size_t used;
  Table *outgrown;
  std::atomic<Kernel *> slots[1];
};

Image *images;
std::atomic<Table *> table;

// What compilers write around a fatbin; fatbinary_section.h has it.
struct Wrapper {
  std::int32_t magic;
  std::int32_t version;
  const void *fatbin;
  const void *more;
};

std::size_t hash_of(const void *stub) {
  const auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(stub));
  return static_cast<std::size_t>((bits >> 4) * 0x9e3779b97f4a7c15u >> 32);
}

// The slot that has the function, or the free one for it.
std::atomic<Kernel *> *slot_for(Table &in, const void *stub) {
  for (std::size_t i = hash_of(stub);; ++i) {
    std::atomic<Kernel *> &slot = in.slots[i & (in.capacity - 1)];
    const Kernel *kernel = slot.load(std::memory_order_acquire);
    if (kernel == nullptr || kernel->stub == stub) {
      return &slot;
    }
  }
}

Kernel *find(const void *stub) {
  Table *current = table.load(std::memory_order_acquire);
  return current == nullptr ? nullptr : slot_for(*current, stub)->load(std::memory_order_acquire);
}

// A table with room for one more; nullptr without memory.
Table *table_with_room() {
  Table *current = table.load(std::memory_order_acquire);
  if (current != nullptr && current->used * 2 < current->capacity) {
    return current;
  }
  const std::size_t capacity = current == nullptr ? 256 : current->capacity * 2;
  auto *larger = static_cast<Table *>(
      std::calloc(1, sizeof(Table) + (capacity - 1) * sizeof(std::atomic<Kernel *>)));
  if (larger == nullptr) {
    return nullptr;
  }
  larger->capacity = capacity;
  larger->outgrown = current;
  for (std::size_t i = 0; current != nullptr && i < current->capacity; ++i) {
    if (Kernel *kernel = current->slots[i].load(std::memory_order_relaxed)) {
      slot_for(*larger, kernel->stub)->store(kernel, std::memory_order_relaxed);
      ++larger->used;
    }
  }
  table.store(larger, std::memory_order_release);
  return larger;
}

// Kernels of an image that has left the driver are loaded anew, should somebody want them.
void forget_handles(const Image *image) {
  Table *current = table.load(std::memory_order_acquire);
  for (std::size_t i = 0; current != nullptr && i < current->capacity; ++i) {
    Kernel *kernel = current->slots[i].load(std::memory_order_relaxed);
    if (kernel != nullptr && kernel->image == image) {
      kernel->handle.store(nullptr, std::memory_order_relaxed);
    }
  }
}

void free_table() {
  Table *current = table.exchange(nullptr);
  for (std::size_t i = 0; current != nullptr && i < current->capacity; ++i) {
    std::free(current->slots[i].load(std::memory_order_relaxed));
  }
  while (current != nullptr) {
    Table *outgrown = current->outgrown;
    std::free(current);
    current = outgrown;
  }
}

// Loading may allocate, which a stream that is being captured in a graph forbids every thread
// unless it says that it knows.
class DuringCapture {
 public:
  explicit DuringCapture(const DriverApi &api) : api_(api) {
    api_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~DuringCapture() { api_.cuThreadExchangeStreamCaptureMode(&mode_); }
  DuringCapture(const DuringCapture &) = delete;
  DuringCapture &operator=(const DuringCapture &) = delete;

 private:
  const DriverApi &api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// The driver reads the fatbin when it loads it, for whichever devices use it.
cudaError_t load(const DriverApi &api, Image &image, CUlibrary *library) {
  *library = image.library.load(std::memory_order_acquire);
  if (*library != nullptr) {
    return cudaSuccess;
  }
  const CUresult result =
      api.cuLibraryLoadData(library, image.fatbin, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) {
    return as_error(result);
  }
  CUlibrary none = nullptr;
  if (!image.library.compare_exchange_strong(none, *library, std::memory_order_acq_rel)) {
    api.cuLibraryUnload(*library);  // another thread was first
    *library = none;
  }
  return cudaSuccess;
}

// At the end of a process Windows may have taken the driver down before this library.
bool driver_is_gone() {
#ifdef _WIN32
  using Query = BOOLEAN(NTAPI *)();
  const HMODULE ntdll = GetModuleHandleA("ntdll.dll");
  const auto ending = reinterpret_cast<Query>(
      reinterpret_cast<void *>(GetProcAddress(ntdll, "RtlDllShutdownInProgress")));
  return ending == nullptr || ending();
#else
  return false;
#endif
}

}  // namespace

Image *register_image(const void *wrapper) {
  for (Image *image = images; image != nullptr; image = image->next) {
    if (image->wrapper == wrapper) {
      ++image->registrations;
      return image;
    }
  }
  auto *image = static_cast<Image *>(std::calloc(1, sizeof(Image)));
  if (image != nullptr) {
    image->wrapper = wrapper;
    image->fatbin = static_cast<const Wrapper *>(wrapper)->fatbin;
    image->registrations = 1;
    image->next = images;
    images = image;
  }
  return image;
}

void register_kernel(Image *image, const void *stub, const char *name) {
  Table *room = image == nullptr || find(stub) != nullptr ? nullptr : table_with_room();
  auto *kernel = room == nullptr ? nullptr : static_cast<Kernel *>(std::calloc(1, sizeof(Kernel)));
  if (kernel != nullptr) {
    kernel->stub = stub;
    kernel->name = name;
    kernel->image = image;
    slot_for(*room, stub)->store(kernel, std::memory_order_release);
    ++room->used;
  }
}

void unregister_image(Image *image) {
  if (image == nullptr || --image->registrations > 0) {
    return;
  }
  const CUlibrary library = image->library.exchange(nullptr);
  forget_handles(image);
  cudaError_t code;
  if (library != nullptr && !driver_is_gone()) {
    if (const DriverApi *api = driver_api(&code)) {
      api->cuLibraryUnload(library);
    }
  }
  bool any = false;
  for (const Image *other = images; other != nullptr; other = other->next) {
    any = any || other->registrations > 0;
  }
  if (any) {
    return;
  }
  free_table();
  while (images != nullptr) {
    Image *next = images->next;
    std::free(images);
    images = next;
  }
}

cudaError_t find_kernel(const DriverApi &api, const void *stub, CUkernel *kernel) {
  Kernel *found = find(stub);
  if (found == nullptr) {
    return cudaErrorInvalidDeviceFunction;
  }
  *kernel = found->handle.load(std::memory_order_acquire);
  if (*kernel != nullptr) {
    return cudaSuccess;
  }
  const DuringCapture relaxed(api);
  CUlibrary library;
  if (const cudaError_t code = load(api, *found->image, &library); code != cudaSuccess) {
    return code;
  }
  const CUresult result = api.cuLibraryGetKernel(kernel, library, found->name);
  if (result == CUDA_SUCCESS) {
    found->handle.store(*kernel, std::memory_order_release);
  }
  return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : as_error(result);
}

}  // namespace flashdepot::driver
