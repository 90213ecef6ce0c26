// What compilers register to be called when the library is unloaded: atexit, as it is in a shared
// library that crtbeginS.o was linked into. zig links none, and its atexit keeps no library with a
// function: after a dlclose the end of the program would call code that is gone.
#if defined(__ELF__)
#include <cstdlib>

// Of the C library (Itanium C++ ABI, "DSO object destruction API"). They need no C++ run time.
extern "C" int __cxa_atexit(void (*function)(void *), void *argument, void *library);
extern "C" void __cxa_finalize(void *library);

namespace {

char library;  // its address stands for the library that this file is linked into

void call(void *function) { reinterpret_cast<void (*)()>(function)(); }

// Before the program ends the functions have been called, and nothing is left to do.
__attribute__((destructor)) void unload() { __cxa_finalize(&library); }

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int atexit(void (*function)()) noexcept {
  return __cxa_atexit(call, reinterpret_cast<void *>(function), &library);
}
#endif
