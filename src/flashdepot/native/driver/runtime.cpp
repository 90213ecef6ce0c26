// The functions of the CUDA runtime that compilers emit and that the library's sources call, over
// the driver. They are NVIDIA's in name and signature, so objects of nvcc and of clang link to them
// as they would to cudart; nobody outside the library sees them.
//
// Streams pass through as they are: NULL, cudaStreamLegacy and cudaStreamPerThread have the same
// values in the driver.
#include <cuda_runtime_api.h>

#include "contexts.h"
#include "driver_api.h"
#include "errors.h"
#include "images.h"
#include "load_only.h"

namespace flashdepot::driver {
namespace {

thread_local cudaError_t last_error;
thread_local bool only_loads;

cudaError_t keep(cudaError_t code) {
  if (code != cudaSuccess) {
    last_error = code;
  }
  return code;
}

cudaError_t keep(CUresult result) { return keep(as_error(result)); }

// The driver, with a context for the calling thread; nullptr and the error in *code without.
const DriverApi *enter(cudaError_t *code) {
  const DriverApi *api = driver_api(code);
  if (api != nullptr) {
    *code = require_context(*api);
  }
  keep(*code);
  return *code == cudaSuccess ? api : nullptr;
}

// Where the compilers' <<<>>> leaves its numbers for the function that launches.
struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  void *stream;
};
constexpr int kMostNested = 8;
thread_local Configuration configurations[kMostNested];
thread_local int configuration_count;

CUdeviceptr address(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Kernels are named by the host function that a compiler made for them, or are the driver's own.
cudaError_t kernel_behind(const DriverApi &api, const void *function, CUkernel *kernel) {
  const cudaError_t code = find_kernel(api, function, kernel);
  if (code == cudaErrorInvalidDeviceFunction) {
    *kernel = static_cast<CUkernel>(const_cast<void *>(function));
    return cudaSuccess;
  }
  return code;
}

// A kernel that nobody asked about since its library was loaded is loaded by the first launch, if the
// driver is lazy. Its function in a context, and then facts of that, are what makes it load.
cudaError_t load(const DriverApi &api, CUkernel kernel) {
  CUfunction function;
  if (const CUresult result = api.cuKernelGetFunction(&function, kernel); result != CUDA_SUCCESS) {
    return as_error(result);
  }
  int registers;
  return as_error(api.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
}

}  // namespace

void load_only(bool on) { only_loads = on; }

bool loads_only() { return only_loads; }

}  // namespace flashdepot::driver

using namespace flashdepot::driver;

extern "C" {

// What compilers emit, which no header declares for everybody (crt/host_runtime.h).

void **__cudaRegisterFatBinary(void *wrapper) {
  return reinterpret_cast<void **>(register_image(wrapper));
}

void __cudaRegisterFatBinaryEnd(void **) {}

void __cudaUnregisterFatBinary(void **image) { unregister_image(reinterpret_cast<Image *>(image)); }

void __cudaRegisterFunction(void **image, const char *stub, char *, const char *name, int, void *,
                            void *, void *, void *, int *) {
  register_kernel(reinterpret_cast<Image *>(image), stub, name);
}

// Device variables are the kernels' own business: nothing here copies to one by its name.
void __cudaRegisterVar(void **, char *, char *, const char *, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     struct CUstream_st *stream) {
  if (configuration_count == kMostNested) {
    keep(cudaErrorMissingConfiguration);
    return 1;  // then the launch is left out
  }
  configurations[configuration_count++] = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, std::size_t *shared, void *stream) {
  if (configuration_count == 0) {
    return keep(cudaErrorMissingConfiguration);
  }
  const Configuration &top = configurations[--configuration_count];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<void **>(stream) = top.stream;
  return cudaSuccess;
}

// nvcc 13 asks once for a handle to launch by. The host function serves as one.
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void *>(stub));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                             std::size_t shared, cudaStream_t stream) {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  if (api == nullptr) {
    return code;
  }
  CUkernel kernel;
  if (code = find_kernel(*api, stub, &kernel); code != cudaSuccess) {
    return keep(code);
  }
  if (only_loads) {
    return keep(load(*api, kernel));
  }
  return keep(api->cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z,
                                  block.x, block.y, block.z, static_cast<unsigned>(shared), stream,
                                  arguments, nullptr));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments) {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  if (api == nullptr) {
    return code;
  }
  CUkernel kernel;
  if (code = kernel_behind(*api, function, &kernel); code != cudaSuccess) {
    return keep(code);
  }
  if (only_loads) {
    return keep(load(*api, kernel));
  }
  CUlaunchConfig launch{};
  launch.gridDimX = config->gridDim.x;
  launch.gridDimY = config->gridDim.y;
  launch.gridDimZ = config->gridDim.z;
  launch.blockDimX = config->blockDim.x;
  launch.blockDimY = config->blockDim.y;
  launch.blockDimZ = config->blockDim.z;
  launch.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
  launch.hStream = config->stream;
  // An attribute is the same bytes in both; driver_types.h says so of its values.
  launch.attrs = reinterpret_cast<CUlaunchAttribute *>(config->attrs);
  launch.numAttrs = config->numAttrs;
  return keep(
      api->cuLaunchKernelEx(&launch, reinterpret_cast<CUfunction>(kernel), arguments, nullptr));
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  if (api == nullptr) {
    return code;
  }
  CUkernel kernel;
  if (code = kernel_behind(*api, function, &kernel); code != cudaSuccess) {
    return keep(code);
  }
  CUdevice device;
  if (const CUresult result = api->cuCtxGetDevice(&device); result != CUDA_SUCCESS) {
    return keep(result);
  }
  return keep(api->cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                        device));
}

// The headers have these from CUDA 12.8 on.
#if CUDART_VERSION >= 12080

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int ordinal) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  CUdevice device;
  if (api == nullptr) {
    return keep(code);
  }
  if (const CUresult result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS) {
    return keep(result);
  }
  return keep(api->cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                        reinterpret_cast<CUkernel>(kernel), device));
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *jit,
                                void **jit_values, unsigned jit_count, cudaLibraryOption *options,
                                void **option_values, unsigned option_count) {
  cudaError_t failure;
  const DriverApi *api = driver_api(&failure);
  if (api == nullptr) {
    return keep(failure);
  }
  return keep(api->cuLibraryLoadData(reinterpret_cast<CUlibrary *>(library), code,
                                     reinterpret_cast<CUjit_option *>(jit), jit_values, jit_count,
                                     reinterpret_cast<CUlibraryOption *>(options), option_values,
                                     option_count));
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  if (api == nullptr) {
    return keep(code);
  }
  return keep(api->cuLibraryGetKernel(reinterpret_cast<CUkernel *>(kernel),
                                      reinterpret_cast<CUlibrary>(library), name));
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  return keep(
      api == nullptr ? code : as_error(api->cuLibraryUnload(reinterpret_cast<CUlibrary>(library))));
}

#endif

cudaError_t cudaGetLastError() {
  const cudaError_t code = last_error;
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char *cudaGetErrorName(cudaError_t code) { return error_name(code); }

const char *cudaGetErrorString(cudaError_t code) { return error_text(code); }

cudaError_t cudaGetDeviceCount(int *count) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  *count = 0;
  if (api == nullptr) {
    return keep(code);
  }
  const CUresult result = api->cuDeviceGetCount(count);
  return keep(result == CUDA_SUCCESS && *count == 0 ? cudaErrorNoDevice : as_error(result));
}

cudaError_t cudaGetDevice(int *ordinal) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  return keep(api == nullptr ? code : current_device(*api, ordinal));
}

cudaError_t cudaSetDevice(int ordinal) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  return keep(api == nullptr ? code : set_device(*api, ordinal));
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal) {
  cudaError_t code;
  const DriverApi *api = driver_api(&code);
  CUdevice device;
  if (api == nullptr) {
    return keep(code);
  }
  if (const CUresult result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS) {
    return keep(result);
  }
  return keep(api->cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device));
}

cudaError_t cudaDeviceSynchronize() {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  return api == nullptr ? code : keep(api->cuCtxSynchronize());
}

cudaError_t cudaMallocAsync(void **data, std::size_t bytes, cudaStream_t stream) {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  return api == nullptr
             ? code
             : keep(api->cuMemAllocAsync(reinterpret_cast<CUdeviceptr *>(data), bytes, stream));
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t stream) {
  cudaError_t code;
  const DriverApi *api = enter(&code);
  return api == nullptr ? code : keep(api->cuMemFreeAsync(address(data), stream));
}

cudaError_t cudaMemsetAsync(void *data, int value, std::size_t bytes, cudaStream_t stream) {
  if (only_loads) {
    return cudaSuccess;
  }
  cudaError_t code;
  const DriverApi *api = enter(&code);
  return api == nullptr ? code
                        : keep(api->cuMemsetD8Async(
                              address(data), static_cast<unsigned char>(value), bytes, stream));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (only_loads) {
    return cudaSuccess;
  }
  cudaError_t code;
  const DriverApi *api = enter(&code);
  return api == nullptr ? code
                        : keep(api->cuMemcpyAsync(address(to), address(from), bytes, stream));
}

}  // extern "C"
