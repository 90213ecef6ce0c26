"""Fill the shared memory of a GPU with what is not a number, as another kernel could have left it.

By the driver itself, from PTX, so that no compiler is needed.
"""

from __future__ import annotations

import ctypes

CODE = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 pool[];
.visible .entry fill(.param .u32 bytes)
{
  .reg .pred %p;
  .reg .b32 %r<7>;
  ld.param.u32 %r1, [bytes];
  mov.u32 %r2, %tid.x;
  shl.b32 %r3, %r2, 2;
  mov.u32 %r4, pool;
  mov.u32 %r6, 0x7fff7fff;
next:
  setp.ge.u32 %p, %r3, %r1;
  @%p bra done;
  add.u32 %r5, %r4, %r3;
  st.volatile.shared.u32 [%r5], %r6;
  add.u32 %r3, %r3, 4096;
  bra next;
done:
  ret;
}
"""
THREADS = 1024
MULTIPROCESSORS, MOST_SHARED = 16, 97  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
MAX_DYNAMIC = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Filler:
    """Launches a block with all of the shared memory a block may have on every SM of the current context's GPU."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device = ctypes.c_int()
        self.call("cuCtxGetDevice", ctypes.byref(device))
        self.blocks, self.bytes = self.attribute(MULTIPROCESSORS, device), self.attribute(MOST_SHARED, device)
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), CODE)
        self.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"fill")
        self.call("cuFuncSetAttribute", self.function, MAX_DYNAMIC, self.bytes)

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.cuda, name)(*arguments)
        assert status == 0, f"{name} answered {status}"

    def attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def fill(self, stream: int) -> None:
        count = ctypes.c_uint32(self.bytes)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(count))
        grid, block = (2 * self.blocks, 1, 1), (THREADS, 1, 1)
        where = (self.bytes, ctypes.c_void_p(stream), arguments, None)
        self.call("cuLaunchKernel", self.function, *grid, *block, *where)
