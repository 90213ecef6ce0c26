// What compilers put into a program with kernels: two fatbins and host functions for their kernels,
// registered while the library is loaded, as nvcc and clang do it.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **image);
void __cudaUnregisterFatBinary(void **image);
void __cudaRegisterFunction(void **image, const char *stub, char *device, const char *name, int,
                            void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, std::size_t *shared, void *stream);
}

namespace {

struct Fatbin {
  std::uint32_t magic;
  std::uint16_t version, header;
  std::uint64_t bytes;
  char body[16];
};
Fatbin fatbins[] = {{0xba55ed50, 1, 16, 16, "the first one"},
                    {0xba55ed50, 1, 16, 16, "another one"}};
struct {
  std::int32_t magic, version;
  const void *fatbin, *more;
} wrappers[] = {{0x466243b1, 1, &fatbins[0], nullptr}, {0x466243b1, 1, &fatbins[1], nullptr}};

constexpr int kKernels = 600;
char stubs[kKernels];  // only their addresses count
char names[kKernels][32];
void **images[3];

void unload() {
  for (void **image : images) {
    __cudaUnregisterFatBinary(image);
  }
}

__attribute__((constructor)) void load() {
  images[0] = __cudaRegisterFatBinary(&wrappers[0]);
  images[1] = __cudaRegisterFatBinary(&wrappers[1]);
  images[2] = __cudaRegisterFatBinary(&wrappers[0]);  // a second time
  for (int i = 0; i < kKernels; ++i) {
    char *end = names[i];
    for (const char *from = i == 7 ? "missing" : "kernel_"; *from != '\0'; ++from) *end++ = *from;
    for (int digit = 100; digit > 0; digit /= 10) *end++ = static_cast<char>('0' + i / digit % 10);
    __cudaRegisterFunction(images[i % 2], &stubs[i], names[i], names[i], -1, nullptr, nullptr,
                           nullptr, nullptr, nullptr);
  }
  // Kernel 0 is in the second fatbin as well, as one that two units share.
  __cudaRegisterFunction(images[1], &stubs[0], names[0], names[0], -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  for (void **image : images) {
    __cudaRegisterFatBinaryEnd(image);
  }
  std::atexit(unload);  // as clang has it: of a shared object, when that is unloaded
}

}  // namespace

// What <<<>>> does: numbers are left, taken up by the kernel's host function, and launched.
extern "C" __attribute__((visibility("default"))) int program_launch(int kernel, unsigned blocks,
                                                                     std::size_t shared,
                                                                     void *stream,
                                                                     std::uint64_t value) {
  dim3 grid, block;
  if (__cudaPushCallConfiguration(dim3(blocks, 2, 3), dim3(128), shared, stream) != 0) {
    return cudaGetLastError();
  }
  if (const cudaError_t code = __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
      code != cudaSuccess) {
    return code;
  }
  void *arguments[] = {&value};
  cudaLaunchKernel(&stubs[kernel], grid, block, arguments, shared,
                   static_cast<cudaStream_t>(stream));
  return cudaGetLastError();
}

extern "C" __attribute__((visibility("default"))) const void *program_stub(int kernel) {
  return &stubs[kernel];
}
