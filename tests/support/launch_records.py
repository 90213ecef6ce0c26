"""What libraries of several targets launch, written down by a driver without a GPU, natively, under qemu and under wine."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashdepot.host.probe import this_platform
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.toolchain.zig import Zig
from support.tools import has

DRIVER = Path(__file__).parents[1] / "native" / "driver"
FLAGS = ("-std=c11", "-O1", "-D_GNU_SOURCE", f"-I{NATIVE / 'include'}")

PARAMETERS = {
    "flash_fwd": 472,
    "flash_bwd": 648,
    "empty_keys_kernel": 56,
    "zeros_kernel": 56,
    "group_sum_kernel": 56,
    "packed_lse_kernel": 48,
}
"""Bytes of a kernel's parameters, by a part of its name: the driver without a GPU reads no kernel."""

ARM = "aarch64-linux-gnu.2.17"
ARM_LIBRARIES = Path("/usr/aarch64-linux-gnu")
"""Where Debian's libc6-arm64-cross puts the C library of aarch64."""


@dataclass(frozen=True)
class Launches:
    """What random calls were answered, and what they asked of the driver."""

    answers: str
    record: str

    @property
    def ran(self) -> int:
        """How many calls launched something and were answered well."""
        return sum(line.split()[1:3] == ["0", "0"] for line in self.answers.splitlines())

    @property
    def orders(self) -> list[str]:
        """The record without where a kernel was loaded from.

        Two units may hold the same kernel, and a linker takes either.
        """
        calls = map(json.loads, self.record.splitlines())
        return [json.dumps(call | {"digest": ""}) for call in calls if call["call"] != "load"]


def record_launches(target: str, library: Path, folder: Path, count: int, *, zig: Zig, prefix: Path) -> Launches | None:
    """Make ``count`` random calls of a library, with seed 1; None where this machine cannot run the target.

    :param library: a folder as ``flashdepot get`` writes it.
    :param zig: for a CPU that the machine's own compiler does not know.
    :param prefix: the folder that wine takes for a Windows machine, made if it is not there.
    """
    folder.mkdir()
    if target == str(this_platform()):
        return _on_linux(["gcc"], {}, (), library, folder, count)
    if target == "linux-aarch64":
        qemu = next(filter(has, ("qemu-aarch64-static", "qemu-aarch64")), None)
        if qemu is None or not ARM_LIBRARIES.is_dir():
            return None
        compiler = [str(zig.program), "cc", "-target", ARM, "-s"]
        environment = zig.linking(ARM, folder)
        return _on_linux(compiler, environment, (qemu, "-L", str(ARM_LIBRARIES)), library, folder, count)
    if target == "windows-x86_64":
        return _on_windows(library, folder, count, prefix)
    return None


def _on_linux(
    compiler: list[str],
    environment: Mapping[str, str],
    runner: tuple[str, ...],
    library: Path,
    folder: Path,
    count: int,
) -> Launches:
    _compile([*compiler, "-shared", "-fPIC", DRIVER / "fake_cuda.c", "-o", folder / "libcuda.so.1"], environment)
    _compile([*compiler, DRIVER / "launches.c", "-o", folder / "launches", "-ldl"], environment)
    shared = (library / "lib/shared/libflashattention.so.1").resolve()
    path = {"LD_LIBRARY_PATH": str(folder)}
    found = {"QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}"} if runner else path
    return _run([*runner, "./launches", str(shared)], library, found, folder, count)


def _on_windows(library: Path, folder: Path, count: int, prefix: Path) -> Launches | None:
    compiler, wine = "x86_64-w64-mingw32-gcc", "wine"
    if not has(compiler, wine):
        return None
    _compile([compiler, "-shared", "-static", DRIVER / "fake_cuda.c", "-o", folder / "nvcuda.dll"])
    _compile([compiler, "-static", DRIVER / "launches.c", "-o", folder / "launches.exe"])
    windows = {
        "WINEPREFIX": str(prefix),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "nvcuda=n;mscoree,mshtml=",
        "DISPLAY": "",
    }
    system = prefix / "drive_c" / "windows" / "system32"
    if not system.is_dir():
        subprocess.run([wine, "cmd", "/c", "exit 0"], env={**os.environ, **windows}, capture_output=True, check=True)
    shutil.copy2(folder / "nvcuda.dll", system)  # where the library looks for it
    shared = (library / "lib/shared/flashattention.dll").resolve()
    return _run([wine, "launches.exe", "Z:" + str(shared).replace("/", "\\")], library, windows, folder, count)


def _compile(words: list[str | Path], more: Mapping[str, str] | None = None) -> None:
    environment = {**os.environ, **(more or {})}
    done = subprocess.run([*words, *FLAGS], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def _run(command: list[str], library: Path, found: Mapping[str, str], folder: Path, count: int) -> Launches:
    asked = {
        "FAKE_CUDA_CAPABILITY": str(json.loads((library / "manifest.json").read_text())["sass"][0]),
        "FAKE_CUDA_PARAMETERS": ",".join(f"{part}:{size}" for part, size in PARAMETERS.items()),
        "FAKE_CUDA_RECORD": "record",
    }
    done = subprocess.run(
        [*command, "1", str(count), "answers"],
        cwd=folder,
        env={**os.environ, **found, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return Launches((folder / "answers").read_text(), (folder / "record").read_text())
