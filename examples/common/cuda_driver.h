/* The few calls of CUDA's driver API that the examples need, found in libcuda.so.1 at run time.
 *
 * A program that has libflashattention needs no CUDA toolkit, neither to build nor to run: the NVIDIA driver brings
 * libcuda.so.1. Types and names are those of the CUDA Driver API manual. C99 and C++11. */
#ifndef EXAMPLES_CUDA_DRIVER_H
#define EXAMPLES_CUDA_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NO_DEVICE = 100 };
enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_NO_GPU = 77 }; /* 77: "skipped", to Automake, Meson and CTest */

typedef struct cuda_driver {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuGetErrorString)(CUresult, const char **);
  CUresult (*cuDeviceGet)(CUdevice *, int);
  CUresult (*cuDeviceGetName)(char *, int, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int *, int, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void *, size_t);
  CUresult (*cuMemcpyDtoH)(void *, CUdeviceptr, size_t);
  CUresult (*cuStreamCreate)(CUstream *, unsigned);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuEventCreate)(CUevent *, unsigned);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float *, CUevent, CUevent);
} cuda_driver;

static inline const char *cuda_error(const cuda_driver *driver, CUresult result) {
  const char *text = NULL;
  return driver->cuGetErrorString(result, &text) == CUDA_SUCCESS && text ? text : "unknown error";
}

/* Load the driver and make the first GPU's primary context current: the one that CUDA's runtime, in libflashattention
 * or elsewhere in the program, uses as well. Prints what is missing.
 * Returns EXIT_RIGHT, EXIT_NO_GPU where there is none, or EXIT_WRONG where there is one that does not work. */
static inline int cuda_open(cuda_driver *driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    printf("no NVIDIA GPU: %s. The NVIDIA driver brings it.\n", dlerror());
    return EXIT_NO_GPU;
  }
/* A function's address comes as a void *, which ISO C lets be read as nothing but an object's. */
#define FIND(member, symbol)                                  \
  *(void **)(&driver->member) = dlsym(library, symbol);       \
  if (!driver->member) {                                      \
    printf("the NVIDIA driver is too old: no %s\n", symbol);  \
    return EXIT_WRONG;                                        \
  }
  FIND(cuInit, "cuInit")
  FIND(cuGetErrorString, "cuGetErrorString")
  FIND(cuDeviceGet, "cuDeviceGet")
  FIND(cuDeviceGetName, "cuDeviceGetName")
  FIND(cuDeviceGetAttribute, "cuDeviceGetAttribute")
  FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")
  FIND(cuCtxSetCurrent, "cuCtxSetCurrent")
  FIND(cuMemAlloc, "cuMemAlloc_v2")
  FIND(cuMemFree, "cuMemFree_v2")
  FIND(cuMemcpyHtoD, "cuMemcpyHtoD_v2")
  FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2")
  FIND(cuStreamCreate, "cuStreamCreate")
  FIND(cuStreamSynchronize, "cuStreamSynchronize")
  FIND(cuEventCreate, "cuEventCreate")
  FIND(cuEventRecord, "cuEventRecord")
  FIND(cuEventSynchronize, "cuEventSynchronize")
  FIND(cuEventElapsedTime, "cuEventElapsedTime")
#undef FIND
  CUresult result = driver->cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) {
    printf("no NVIDIA GPU: the driver is there and serves none. In a container, start it with --gpus all.\n");
    return EXIT_NO_GPU;
  }
  CUdevice device = 0;
  CUcontext context = NULL;
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGet(&device, 0);
  if (result == CUDA_SUCCESS) result = driver->cuDevicePrimaryCtxRetain(&context, device);
  if (result == CUDA_SUCCESS) result = driver->cuCtxSetCurrent(context);
  char name[128] = "";
  int major = 0, minor = 0;
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetName(name, sizeof name, device);
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetAttribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetAttribute(&minor, COMPUTE_CAPABILITY_MINOR, device);
  if (result != CUDA_SUCCESS) {
    printf("the NVIDIA driver does not work: %s\n", cuda_error(driver, result));
    return EXIT_WRONG;
  }
  printf("GPU: %s, compute capability %d.%d\n", name, major, minor);
  return EXIT_RIGHT;
}

#endif /* EXAMPLES_CUDA_DRIVER_H */
