"""What one call of flash_attn_2_cuda.fwd costs the CPU, over a bare ctypes call.

Usage: python benchmarks/call_overhead.py          where the wheel is installed and torch sees a GPU
       python benchmarks/call_overhead.py --cpu    without a GPU: CPU tensors, device checks that ask for the CPU

The library's functions are replaced by one of the C library that does nothing, so only Python and torch are measured.
"""

from __future__ import annotations

import ctypes
import sys
import timeit
import types
from collections.abc import Callable
from typing import Any

import flash_attn_2_cuda
import torch
from flash_attn_2_cuda import forward, library, tensors

CALLS, REPEATS = 10_000, 9


def microseconds(call: Callable[[], Any]) -> float:
    """The fastest of some repeats."""
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def nothing(argument_types: tuple[Any, ...]) -> Any:
    """`int abs(int)` on a pointer: a C function that is called through the same path and does nothing."""
    function = ctypes.CDLL(None)["abs"]
    function.argtypes = argument_types
    function.restype = ctypes.c_int32
    return function


def accept_cpu_tensors() -> None:
    """Let the checks ask `is_cpu` where they ask `is_cuda`, at the same cost."""
    code = tensors.read_kind.__code__
    names = tuple("is_cpu" if name == "is_cuda" else name for name in code.co_names)
    forward.read_kind = types.FunctionType(code.replace(co_names=names), tensors.__dict__, None, ("k", "v"))
    forward.current_stream = int


def main() -> None:
    """Print one line for each figure."""
    cpu = "--cpu" in sys.argv[1:]
    if cpu:
        accept_cpu_tensors()
    q, k, v = (torch.zeros(1, 8, 2, 64, dtype=torch.float16, device="cpu" if cpu else "cuda") for _ in "qkv")
    pointer = ctypes.c_char_p
    launch, query = nothing((pointer,)), nothing((pointer, ctypes.c_void_p, ctypes.c_void_p))
    # abs of a pointer is not FA_STATUS_OK: what it returns is dropped, at the cost of what reads a status.
    launch.restype = query.restype = None
    library._fwd, library._fwd_workspace = launch, query  # noqa: SLF001
    data = bytes(library.DENSE_FORWARD.size)

    def outputs() -> None:
        torch.empty_like(q)
        torch.empty(1, 2, 8, dtype=torch.float32, device=q.device)
        torch.empty(2, dtype=torch.int64, device=q.device)
        q.new_empty(0)

    def call() -> None:
        flash_attn_2_cuda.fwd(q, k, v, None, None, 0.0, 0.125, True, -1, -1, 0.0, False, None)

    bare, allocated, whole = (microseconds(f) for f in (lambda: launch(data), outputs, call))
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {q.device}; microseconds a call")
    print(f"{'bare ctypes call':<40}{bare:6.2f}")
    print(f"{'torch allocating the four results':<40}{allocated:6.2f}")
    print(f"{'fwd':<40}{whole:6.2f}")
    print(f"{'fwd, less bare call and allocations':<40}{whole - bare - allocated:6.2f}")


if __name__ == "__main__":
    main()
