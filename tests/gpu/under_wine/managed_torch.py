"""A pytest plugin: PyTorch for Windows without CUDA, whose tensors are in managed memory, which the GPU reads and writes.

A tensor says that it is on GPU 0, and its device is "cpu"; torch's own operations run on the CPU. All calls go into the
default stream and are waited for. Where a test asks for more, it is skipped.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from contextlib import nullcontext
from ctypes import CFUNCTYPE, byref, c_bool, c_int, c_size_t, c_uint64, c_void_p
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

os.environ["KMP_AFFINITY"] = "disabled"  # it asks for what wine 8 does not have
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # AMX is an illegal instruction under wine 8
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # as torch_with_gpu.py does
    import torch

from support.fa_abi import Library

BYTES = int(os.environ.get("FLASHDEPOT_TEST_MANAGED_BYTES", "32000000000"))
ATTACH_GLOBAL, SMALLEST = 1, 512
CPU = 0xFF00  # a c10::Device: of type 0, number -1
SET_ALLOCATOR = "?SetCPUAllocator@c10@@YAXPEAUAllocator@1@E@Z"

driver = ctypes.CDLL("nvcuda.dll")
sizes: dict[int, int] = {}
freed: dict[int, list[int]] = {}


def need(status: int, *_: Any) -> int:
    assert status == 0, f"the driver answers {status}"
    return status


def enter() -> int:
    """Enter the GPU's context, and take all memory that there will be: its address."""
    device, context, memory = c_int(), c_void_p(), c_uint64()
    need(driver.cuInit(0))
    need(driver.cuDeviceGet(byref(device), 0))
    need(driver.cuDevicePrimaryCtxRetain(byref(context), device))
    need(driver.cuCtxSetCurrent(context))
    need(driver.cuMemAllocManaged(byref(memory), c_size_t(BYTES), ATTACH_GLOBAL))
    return memory.value


next_address = enter()
end = next_address + BYTES


@CFUNCTYPE(None, c_void_p)
def delete(address: int) -> None:
    freed[sizes[address]].append(address)


@CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)
def allocate(_: int, result: int, size: int) -> int:
    """Fill a c10::DataPtr as Microsoft's compiler lays it out: the address, who deletes what, the device."""
    global next_address
    size = max(SMALLEST, 1 << (size - 1).bit_length())
    if freed.setdefault(size, []):
        address = freed[size].pop()
    else:
        address, next_address = next_address, next_address + size
        sizes[address] = size
    if next_address > end:
        os._exit(3)  # a callback of C cannot raise
    (c_uint64 * 4).from_address(result)[:] = (address, DELETE, address, CPU)
    return result


@CFUNCTYPE(c_bool, c_void_p, c_void_p)
def is_simple(*_: int) -> bool:
    return True


@CFUNCTYPE(c_void_p, c_void_p)
def deleter(_: int) -> int | None:
    return DELETE


@CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)
def copy(_: int, to: int, of: int, size: int) -> None:
    ctypes.memmove(to, of, size)


DELETE = ctypes.cast(delete, c_void_p).value
methods = (c_void_p * 5)(None, *(ctypes.cast(f, c_void_p).value for f in (allocate, is_simple, deleter, copy)))
allocator = c_void_p(ctypes.addressof(methods))
ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "c10.dll"))[SET_ALLOCATOR](byref(allocator), c_int(255))


def on_cpu(function: Any) -> Any:
    def placed(argument: Any) -> Any:
        is_gpu = isinstance(argument, (str, torch.device)) and str(argument).startswith("cuda")
        return "cpu" if is_gpu else argument

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*map(placed, arguments), **{name: placed(value) for name, value in named.items()})

    return call


def absent(*_: Any, **__: Any) -> NoReturn:
    pytest.skip("PyTorch without CUDA has no streams, no graphs, and compiles nothing")


class Numbers:
    """The GPU's generator: a seed, and how many of its numbers were taken."""

    seed = offset = 0

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset


class Generator(torch.Generator):
    def __new__(cls, *_: Any, **__: Any) -> Any:
        return torch._C.Generator("cpu")


def seed(number: int) -> None:
    numbers.seed, numbers.offset = number, 0
    seed_cpu(number)


numbers, seed_cpu = Numbers(), torch.manual_seed
torch.manual_seed = torch.cuda.manual_seed = seed
torch.Generator = Generator
FACTORIES = "arange as_tensor empty full linspace ones rand randint randn randperm tensor zeros"
for name in FACTORIES.split():
    setattr(torch, name, on_cpu(getattr(torch, name)))
torch.Tensor.to, torch.Tensor.cuda = on_cpu(torch.Tensor.to), lambda self: self
torch.Tensor.is_cuda, torch.Tensor.get_device = property(lambda _: True), lambda _: 0
torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice = lambda _: 0, lambda: 0
torch._C._dynamo.guards._empty_strided_cuda = lambda shape, stride, kind: torch.empty_strided(shape, stride, dtype=kind)
torch.cuda.is_available, torch.cuda.device_count, torch.cuda.device = lambda: True, lambda: 1, nullcontext
torch.cuda.current_stream = lambda *_: SimpleNamespace(cuda_stream=0)
torch.cuda.is_current_stream_capturing, torch.cuda.default_generators = lambda: False, (numbers,)
torch.cuda.synchronize = lambda *_: need(driver.cuCtxSynchronize())
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: SimpleNamespace(name="a GPU", total_memory=BYTES)
torch.cuda.Stream = torch.cuda.CUDAGraph = torch.compile = absent

# The wheel refuses tensors on the CPU where torch's dispatcher has a call.
make_operator, implement = torch.library.custom_op, torch.library.Library.impl
torch.library.custom_op = lambda name, *function, **how: make_operator(
    name, *function, **{**how, "device_types": "cpu"}
)
torch.library.Library.impl = lambda self, name, function, *key, **more: (
    None if getattr(function, "__name__", "") == "refuse" else implement(self, name, function, *key, **more)
)


def finished(status: int, *_: Any) -> int:
    return status or need(driver.cuCtxSynchronize())


# Both ways to call a library: that of the wheel, and that of these tests.
answer = Library._answer
Library._answer = lambda self, status: answer(self, finished(status))
try:
    from flash_attn_2_cuda import library
except ImportError:
    pass
else:
    library.forward_call.errcheck = library.backward_call.errcheck = finished
