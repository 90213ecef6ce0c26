"""A Windows library as a `Library`: a Windows program under wine calls it, over copies of this process's buffers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from ctypes import Structure, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import pytest

from gpu.under_wine.build_programs import LINUX, WINDOWS, build
from support.fa_abi import (
    Answer,
    BackwardArgs,
    Choice,
    Contents,
    Dtype,
    Family,
    Feature,
    ForwardArgs,
    Library,
    Pass,
    Status,
    Tensor,
)

PROGRAMS_VARIABLE = "FLASHDEPOT_TEST_WINDOWS_PROGRAMS"
"""A folder that build_programs.py has filled, for a machine without its compilers."""

WINE_VARIABLE = "FLASHDEPOT_TEST_WINE"
PREFIX_VARIABLE = "FLASHDEPOT_TEST_WINEPREFIX"

CONTENTS, SUPPORTS, FWD_WORKSPACE, FWD, BWD_WORKSPACE, BWD = range(6)
REQUEST, POINTER, ANSWER = Struct("<iiIII"), Struct("<IIQ"), Struct("<iiQII")


def is_windows_library(folder: Path) -> bool:
    return (folder / "lib" / "shared" / "flashattention.dll").is_file()


@dataclass(frozen=True)
class Wine:
    """A wine whose programs find this machine's driver as nvcuda.dll."""

    program: str
    programs: Path
    prefix: Path

    @property
    def environment(self) -> dict[str, str]:
        quiet = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=", "DISPLAY": ""}
        return {**os.environ, **quiet, "WINEPREFIX": str(self.prefix), "WINEDLLPATH": str(self.programs)}


def prepare_wine(folder: Path) -> Wine:
    """Make a Windows folder with nvcuda.dll, and the programs; both are taken as they are where a variable names one."""
    program = os.environ.get(WINE_VARIABLE) or shutil.which("wine")
    if program is None:
        pytest.skip(f"needs wine to run a Windows library (apt-get install wine, or {WINE_VARIABLE})")
    prepared = os.environ.get(PROGRAMS_VARIABLE)
    if not prepared and not all(map(shutil.which, (WINDOWS, LINUX))):
        pytest.skip(f"needs {WINDOWS} and {LINUX}, or {PROGRAMS_VARIABLE}")
    kept = os.environ.get(PREFIX_VARIABLE)
    wine = Wine(
        program,
        Path(prepared).resolve() if prepared else build(folder / "programs"),
        Path(kept).resolve() if kept else folder / "prefix",
    )
    if not kept:
        subprocess.run([program, "cmd", "/c", "exit 0"], env=wine.environment, capture_output=True, check=True)
    system = wine.prefix / "drive_c" / "windows" / "system32"
    # other processes may have the one that is there mapped
    new = system / f"nvcuda.{os.getpid()}"
    shutil.copyfile(wine.programs / "x86_64-windows" / "nvcuda.dll", new)
    new.replace(system / "nvcuda.dll")
    return wine


def as_windows_path(path: Path) -> str:
    """A path of this system as wine's programs see it: drive Z: is the root."""
    return "Z:" + str(path.resolve()).replace("/", "\\")


class Memory:
    """The memory of the device of this process, through the driver that its framework has started."""

    def __init__(self) -> None:
        self.c = ctypes.CDLL("libcuda.so.1")
        self.c.cuMemcpyDtoH_v2.argtypes = [c_void_p, c_uint64, ctypes.c_size_t]
        self.c.cuMemcpyHtoD_v2.argtypes = [c_uint64, c_void_p, ctypes.c_size_t]

    def allocation(self, address: int) -> tuple[int, int]:
        """Start and size of the allocation that an address is in."""
        start, size = c_uint64(), ctypes.c_size_t()
        found = self.c.cuMemGetAddressRange_v2(ctypes.byref(start), ctypes.byref(size), c_uint64(address))
        assert found == 0, f"{address:#x} is in no allocation: {found}"
        return start.value, size.value

    def read(self, start: int, size: int) -> bytearray:
        bytes_ = bytearray(size)
        into = (ctypes.c_char * size).from_buffer(bytes_)
        assert self.c.cuMemcpyDtoH_v2(ctypes.addressof(into), start, size) == 0
        return bytes_

    def write(self, start: int, content: bytearray) -> None:
        source = (ctypes.c_char * len(content)).from_buffer(content)
        assert self.c.cuMemcpyHtoD_v2(start, ctypes.addressof(source), len(content)) == 0


def pointers(args: Structure) -> dict[int, int]:
    """Offset and value of every pointer to the device that is set among the arguments."""
    found = {}
    for name, kind in args._fields_:  # type: ignore[misc]
        offset = getattr(type(args), name).offset
        value = getattr(args, name).data if kind is Tensor else getattr(args, name)
        if (kind is Tensor or (kind is c_void_p and name != "stream")) and value:
            found[offset] = value
    return found


class RelayedLibrary(Library):
    """flashattention.dll under wine, on the GPU of this machine.

    What another process cannot do is skipped: streams and captures of this one.
    """

    def __init__(self, folder: Path, wine: Wine, memory: Memory | None = None) -> None:
        self.path = folder / "lib" / "shared" / "flashattention.dll"
        server = wine.programs / "attention_server.exe"
        self.memory = memory
        self.process = subprocess.Popen(
            [wine.program, as_windows_path(server), as_windows_path(self.path)],
            env=wine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def close(self) -> None:
        """End the Windows program: it ends where its input does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()

    def fwd(self, args: ForwardArgs) -> Answer:
        return self._pass(FWD, args)

    def bwd(self, args: BackwardArgs) -> Answer:
        return self._pass(BWD, args)

    def supports(self, device: int, args: ForwardArgs) -> Answer:
        return self._ask(SUPPORTS, args, device)[0]

    def choose(self, device: int, args: ForwardArgs) -> tuple[Answer, Choice]:
        raise NotImplementedError("the Windows program does not hand on which family it chose")

    def fwd_workspace(self, args: ForwardArgs) -> tuple[Answer, int, int]:
        answer, count, splits, _ = self._ask(FWD_WORKSPACE, args)
        return answer, count, splits

    def bwd_workspace(self, args: BackwardArgs) -> tuple[Answer, int]:
        answer, count, _, _ = self._ask(BWD_WORKSPACE, args)
        return answer, count

    def contents(self) -> Contents:
        text = self._ask(CONTENTS)[0].text
        whole, *each = text.split("family ")
        families = [int(one.split()[0]) for one in each]
        chosen = families.index(Family.FA2.value) if Family.FA2.value in families else 0
        found: dict[str, list[list[str]]] = {}
        for line in (whole + each[chosen].partition("\n")[2]).splitlines():
            word, *values = line.split()
            found.setdefault(word, []).append(values)

        def only(word: str) -> str:
            [[value]] = found[word]
            return value

        units = [tuple(map(int, unit)) for unit in found["unit"]]
        return Contents(
            version=int(only("version")),
            families=tuple(map(Family, families)),
            upstream=only("upstream"),
            flashdepot=only("flashdepot"),
            cuda=int(only("cuda")),
            features=Feature(int(only("features"))),
            sass=tuple(int(sass) for [sass] in found["sass"]),
            head_dims=tuple(int(dim) for [dim] in found["head_dim"]),
            units=frozenset((Pass(kind), Dtype(dtype), dim, bool(causal)) for kind, dtype, dim, causal in units),
        )

    def _pass(self, operation: int, args: ForwardArgs | BackwardArgs) -> Answer:
        """Run a pass over copies, and write back what it left in them."""
        if args.stream:
            pytest.skip("a Windows program under wine has no part in the streams of this process")
        self.memory = self.memory or Memory()
        named = pointers(args)
        starts = sorted({self.memory.allocation(value) for value in named.values()})
        numbers = {start: number for number, (start, _) in enumerate(starts)}
        table = []
        for offset, value in named.items():
            start, _ = self.memory.allocation(value)
            table.append((offset, numbers[start], value - start))
        before = [self.memory.read(start, size) for start, size in starts]
        answer, _, _, after = self._ask(operation, args, buffers=before, table=table)
        for (start, _), old, new in zip(starts, before, after, strict=True):
            if old != new:
                self.memory.write(start, new)
        return answer

    def _ask(
        self,
        operation: int,
        args: Structure | None = None,
        device: int = 0,
        buffers: list[bytearray] | None = None,
        table: list[tuple[int, int, int]] | None = None,
    ) -> tuple[Answer, int, int, list[bytearray]]:
        """The answer, the workspace's bytes, the splits, and the buffers after the pass."""
        buffers, table = buffers or [], table or []
        content = b"" if args is None else bytes(args)
        send = self.process.stdin
        assert send is not None
        send.write(REQUEST.pack(operation, device, len(content), len(buffers), len(table)))
        send.write(content)
        send.write(b"".join(len(one).to_bytes(8, "little") for one in buffers))
        send.write(b"".join(POINTER.pack(*row) for row in table))
        for one in buffers:
            send.write(one)
        send.flush()
        status, splits, count, length, passed = ANSWER.unpack(self._receive(ANSWER.size))
        text = bytes(self._receive(length)).decode()
        after = [self._receive(len(one)) for one in buffers] if passed else []
        return Answer(Status(status), text), count, splits, after

    def _receive(self, size: int) -> bytearray:
        assert self.process.stdout is not None
        received = bytearray(self.process.stdout.read(size))
        assert len(received) == size, f"the Windows program ended: {self.process.wait()}"
        return received
