// nvcuda.dll for wine: hands every call to relay.c, which is on the other side of the fence.
#include <windows.h>

#include "driver_functions.h"

enum { UNIX_FUNCTIONS_OF_A_MODULE = 1000 };  // MemoryWineUnixFuncs of wine's winternl.h

typedef LONG(WINAPI *query_function)(HANDLE, const void *, int, void *, SIZE_T, SIZE_T *);
typedef LONG(WINAPI *unix_function)(UINT64, unsigned, void *);

static UINT64 relay;
static unix_function call_unix;

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved) {
  (void)reserved;
  if (reason != DLL_PROCESS_ATTACH) {
    return TRUE;
  }
  const HMODULE ntdll = GetModuleHandleA("ntdll.dll");
  const query_function query = (query_function)(void *)GetProcAddress(ntdll, "NtQueryVirtualMemory");
  call_unix = (unix_function)(void *)GetProcAddress(ntdll, "__wine_unix_call");
  return query && call_unix &&
         query(GetCurrentProcess(), self, UNIX_FUNCTIONS_OF_A_MODULE, &relay, sizeof relay, NULL) == 0;
}

#define FORWARD(name)                                                                              \
  __declspec(dllexport) int name(UINT64 a, UINT64 b, UINT64 c, UINT64 d, UINT64 e, UINT64 f,       \
                                 UINT64 g, UINT64 h, UINT64 i, UINT64 j, UINT64 k, UINT64 l) {     \
    struct driver_call call = {{a, b, c, d, e, f, g, h, i, j, k, l}, NUMBER_OF_##name, 999};       \
    call_unix(relay, 0, &call);                                                                    \
    return call.result;                                                                            \
  }
DRIVER_FUNCTIONS(FORWARD)
