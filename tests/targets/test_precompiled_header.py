"""What zig's clang makes with a precompiled header and without, and that a library launches the same on every target."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.host.probe import this_platform
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action
from flashdepot.toolchain.targets import CUDA_OUTPUTS, TARGETS, precompiled, target_of
from flashdepot.toolchain.zig import Zig, compiling_version, pinned_zig
from support.recipes import TOOLS, make_recipe
from support.tools import has, run_program

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
        environment = zig.environment(folder)
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
    run_program([*words, *FLAGS], env=environment)


def _run(command: list[str], library: Path, found: Mapping[str, str], folder: Path, count: int) -> Launches:
    asked = {
        "FAKE_CUDA_CAPABILITY": str(json.loads((library / "manifest.json").read_text())["sass"][0]),
        "FAKE_CUDA_PARAMETERS": ",".join(f"{part}:{size}" for part, size in PARAMETERS.items()),
        "FAKE_CUDA_RECORD": "record",
    }
    run_program([*command, "1", str(count), "answers"], cwd=folder, env={**os.environ, **found, **asked})
    return Launches((folder / "answers").read_text(), (folder / "record").read_text())


COMMON = """\
#pragma once
#if __has_include("perhaps.h")
#endif
template <typename T> struct Sum { T value; T operator()(T more) { static T all; return all += value * more; } };
"""
KERNEL = r"^(?:__global__ void \w+|DEFINE_FLASH_\w+_KERNEL)\([^{]*\{\n(.*?)^\}"
SOURCE = """\
#include "common.h"
int COUNTER;
extern "C" long UNIT(long more) { return Sum<long>{COUNTER}(more); }
"""


@pytest.mark.usefixtures("quick_library")  # which has zig fetched
def test_clang_makes_the_same_bytes_with_it_from_the_same_files(tmp_path, real_depot) -> None:
    version = compiling_version()
    zig = Zig(real_depot / "toolchains" / pinned_zig(this_platform(), version).folder, version)
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "common.h").write_text(COMMON)
    (folder / "perhaps.h").touch()
    (folder / "code.fatbin").write_bytes(b"code")
    for name in "abcd":
        (folder / f"{name}.cu").write_text(SOURCE.replace("COUNTER", f"counter_{name}").replace("UNIT", name))
    row = target_of(this_platform())
    front = ("{zig_program}", "clang", "-cc1", "-triple", row.clang, "-emit-obj", "-O2", "-std=c++17")
    cuda = (
        "-aux-triple",
        "nvptx64-nvidia-cuda",
        "-fcuda-include-gpubinary",
        "{src}/code.fatbin",
        "-target-sdk-version=12.3",
    )
    words = (*front, *cuda, "-include", "common.h")
    plain = [Action(name, "src", f"{name}.cu", words, TOOLS, outputs=CUDA_OUTPUTS) for name in "abcd"]

    def build(actions: list[Action], depot: str) -> BuildOutcome:
        place = Depot(tmp_path / depot)
        with place.workspace() as work:
            programs = {"zig_program": str(zig.program)}
            executor = LocalExecutor(PlaceNames((("src", folder),)), programs, dict(os.environ), Limits(jobs=1), work)
            outcome = Engine(place, make_recipe(), executor, {}, BuildProgress(), work).run(actions)
            made = [path for path in work.glob("header-*/header.pch") if path.stat().st_size]
        assert len(made) == (actions is not plain)
        assert not list(tmp_path.rglob("*.pch")), "none is left behind"
        return outcome

    without = build(plain, "without").actions
    begun = build([replace(action, header=precompiled(words)) for action in plain], "with").actions
    assert "{src}/perhaps.h" in without["a"].inputs, "asked for, and so an input"
    assert {n: (r.action_key, r.object) for n, r in begun.items()} == {
        n: (r.action_key, r.object) for n, r in without.items()
    }


def test_upstreams_kernels_call_nothing_on_the_host_that_has_a_body(upstream_tree) -> None:
    called: set[str] = set()
    for path in (upstream_tree / "csrc/flash_attn/src").glob("flash_*_launch_template.h"):
        for body in re.findall(KERNEL, path.read_text(), re.MULTILINE | re.DOTALL):
            if "ARCH_SUPPORTS_FLASH" not in body:
                called.update(re.findall(r"FLASH_NAMESPACE::(\w+)<", body))
    declared = "".join(path.read_text() for path in (NATIVE / "host/fa2").glob("*.h"))
    assert called == set(re.findall(r"^void (\w+)\(", declared, re.MULTILINE))


LIBRARIES = os.environ.get("FLASHDEPOT_TEST_LAUNCHES")
"""A folder with libraries as `flashdepot get --target T --out` writes them, each by the name of its target."""


@pytest.mark.skipif(LIBRARIES is None, reason="compares libraries: FLASHDEPOT_TEST_LAUNCHES names their folder")
def test_three_thousand_random_calls_launch_the_same_on_every_target(real_depot, tmp_path) -> None:
    version = compiling_version()
    zig = Zig(real_depot / "toolchains" / pinned_zig(this_platform(), version).folder, version)
    made = {}
    for name in map(str, TARGETS):
        library = Path(str(LIBRARIES), name)
        if library.is_dir():
            made[name] = record_launches(name, library, tmp_path / name, 3000, zig=zig, prefix=tmp_path / "wine")
    ran = [launches for launches in made.values() if launches is not None]
    assert len(ran) > 1, f"nothing to compare: {', '.join(made)}"
    first, *others = ran
    assert first.ran > 0
    for other in others:
        assert other.answers == first.answers
        assert other.orders == first.orders
