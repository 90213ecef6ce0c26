"""The run time over the driver, with a driver that has no GPU, each test in a process of its own.

The fake driver calls itself libcuda.so.1, so once it is loaded, all who ask the loader for the driver get it.
"""

import ctypes
import importlib
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import wraps
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from support.stub_library import NATIVE
from support.tools import run_program

HERE = Path(__file__).parent / "driver"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fno-exceptions", "-fno-rtti")


@dataclass(frozen=True)
class Libraries:
    """Shared libraries: a program with kernels over the run time, and drivers."""

    program: Path
    driver: Path
    incomplete_driver: Path


def build(folder: Path, cuda_include: Path) -> Libraries:
    """Compile them; every function of the run time is visible in the program.

    Without the compiler's own start files, as zig links: what they do when a library is unloaded is the run time's.
    """
    (folder / "fa_config.h").write_text("#define FA_CONFIG_CUDA 13000\n")
    program = folder / "libprogram.so"
    sources = [HERE / "program.cpp", *sorted((NATIVE / "driver").glob("*.cpp"))]
    includes = [f"-I{folder}", f"-I{NATIVE / 'driver'}", "-isystem", str(cuda_include)]
    run_program(
        [
            "g++",
            "-shared",
            "-nostartfiles",
            *FLAGS,
            *includes,
            "-Wl,--no-undefined",
            *map(str, sources),
            "-ldl",
            "-o",
            str(program),
        ]
    )
    return Libraries(
        program,
        build_driver(folder / "libcuda.so.1"),
        build_driver(folder / "incomplete" / "libcuda.so.1", "-DcuLibraryLoadData=renamed"),
    )


def build_driver(path: Path, *options: str) -> Path:
    """Compile the fake driver."""
    path.parent.mkdir(exist_ok=True)
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", *options]
    run_program([*command, "-shared", "-Wl,-soname,libcuda.so.1", str(HERE / "fake_cuda.c"), "-o", str(path)])
    return path


class Driver:
    """The fake driver, loaded into this process."""

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        self.c.fake_record.restype = c_char_p
        self.c.fake_context.restype = self.c.fake_current.restype = self.c.fake_primary.restype = c_void_p
        self.c.fake_enter.argtypes = [c_void_p]
        self.c.fake_parameters.argtypes = [c_char_p, c_size_t]
        self.c.fake_parameters(b"kernel_", 8)

    def calls(self, name: str = "") -> list[dict[str, Any]]:
        """What was asked of the driver since the last time, of one kind or all."""
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.c.fake_record().decode().splitlines()]
        self.c.fake_clear()
        return [line for line in lines if name in ("", line["call"])]


class Program:
    """A copy of the program with kernels, loaded into this process."""

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        self.c.program_launch.argtypes = [c_int, c_uint, c_size_t, c_void_p, c_uint64]
        self.c.program_stub.restype = c_void_p
        self.c.cudaGetErrorName.restype = self.c.cudaGetErrorString.restype = c_char_p
        self.c.cudaMemsetAsync.argtypes = [c_void_p, c_int, c_size_t, c_void_p]
        self.c.cudaMemcpyAsync.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_void_p]
        self.c.cudaMallocAsync.argtypes = [c_void_p, c_size_t, c_void_p]
        self.c.cudaFreeAsync.argtypes = [c_void_p, c_void_p]
        self.c.cudaFuncSetAttribute.argtypes = [c_void_p, c_int, c_int]
        self.c.cudaLaunchKernelExC.argtypes = [c_void_p, c_void_p, c_void_p]
        self.c.cudaLibraryLoadData.argtypes = [c_void_p, c_void_p, *[c_void_p, c_void_p, c_uint] * 2]
        self.c.cudaLibraryGetKernel.argtypes = [c_void_p, c_void_p, c_char_p]
        self.c.cudaKernelSetAttributeForDevice.argtypes = [c_void_p, c_int, c_int, c_int]
        self.c.cudaLibraryUnload.argtypes = [c_void_p]

    def launch(self, kernel: int = 1, blocks: int = 5, shared: int = 0, stream: int = 0, value: int = 7) -> int:
        """Launch a kernel as <<<>>> would and return the last error."""
        code: int = self.c.program_launch(kernel, blocks, shared, stream, value)
        return code

    def device(self) -> int:
        """Return the ordinal of the current device."""
        ordinal = c_int(-1)
        assert self.c.cudaGetDevice(ctypes.byref(ordinal)) == 0
        return ordinal.value


Scenario = Callable[[Libraries], None]


def apart(scenario: Scenario) -> Callable[..., None]:
    """Make a test of a function that runs in a fresh process."""

    @wraps(scenario)
    def test(libraries: Libraries) -> None:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(_run, scenario.__module__, scenario.__name__, libraries).result()

    test.scenario = scenario  # type: ignore[attr-defined]
    return test


def _run(module: str, name: str, libraries: Libraries) -> None:
    getattr(importlib.import_module(module), name).scenario(libraries)
