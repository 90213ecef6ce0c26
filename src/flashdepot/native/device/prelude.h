// For zig's clang as the preprocessor of nvcc. NVIDIA's headers know libc++ on Android only, and then
// want to come after it: the C++ library first, as itself, then they, told that this is Android.
#pragma once

#ifdef __CUDACC__
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#define __ANDROID__ 1
#include <cuda_runtime.h>
#undef __ANDROID__
#endif
