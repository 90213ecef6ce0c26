"""CUDA toolkits and zigs that answer like real ones and compile nothing."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashdepot.files.folders import make_whole
from flashdepot.host.probe import this_platform
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import CudaToolkit, Gpu, HostCompiler, HostRecord
from flashdepot.model.target import Platform, Version
from flashdepot.toolchain.zig import compiling_version, pinned_zig
from support.programs import INCLUDE, RECORDER, compile_c
from support.tools import need_nvcc

CODES = {
    "11.8": "70 75 80 86 87 89 90",
    "12.4": "70 75 80 86 87 89 90",
    "12.8": "75 80 86 87 89 90 100 101 120",
    "13.0": "75 80 86 87 88 89 90 100 103 110 120 121",
}
NEWEST_GCC = {"11.8": 11, "12.4": 13, "12.8": 14, "13.0": 15}
NEWEST_CLANG = {"11.8": 14, "12.4": 17, "12.8": 19, "13.0": 20}


def make_toolkit(root: Path, release: str) -> CudaToolkit:
    """A folder that looks like the CUDA toolkit of a release."""
    need_nvcc()
    files = [
        "bin/cudafe++",
        "bin/ptxas",
        "bin/fatbinary",
        "bin/nvcc.profile",
        "nvvm/bin/cicc",
        "nvvm/libdevice/libdevice.10.bc",
        "lib64/libcudart_static.a",
    ]
    for name in [*files, "include/cuda_runtime.h", "include/cuda_fp16.h"]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    config = root / "include/crt/host_config.h"
    config.parent.mkdir()
    config.write_text(
        f"#if __GNUC__ > {NEWEST_GCC[release]}\n#error\n#endif\n"
        f"#if (__clang_major__ >= {NEWEST_CLANG[release] + 1}) || (__clang_major__ < 3)\n#error\n#endif\n"
        "#if _MSC_VER < 1920 || _MSC_VER >= 1950\n#error\n#endif\n"
    )
    nvcc = root / "bin/nvcc"
    codes = " ".join(f"sm_{code}" for code in CODES[release].split())
    nvcc.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'--version) echo "Cuda compilation tools, release {release}, V{release}.99";;\n'
        f'--list-gpu-code) printf "%s\\n" {codes};;\n'
        '--help) echo "--objdir-as-tempdir (-objtemp)";;\n'
        f'--dryrun) echo "#\\$ TOP={root}" >&2;;\n'
        "esac\n"
    )
    nvcc.chmod(0o755)
    return CudaToolkit(str(root), Version(f"{release}.99"), "PATH")


def make_host(
    *toolkits: CudaToolkit,
    gcc: tuple[str, ...] = ("12.2.0",),
    driver: str | None = None,
    gpus: tuple[Gpu, ...] = (),
    os_name: str = "Debian GNU/Linux 12 (bookworm)",
    platform: str = "linux-x86_64",
    compilers: tuple[HostCompiler, ...] | None = None,
) -> HostRecord:
    """A host record with these facts; ``compilers`` in place of those of ``gcc``."""
    gnu = tuple(HostCompiler("g++", f"/usr/bin/g++-{v.split('.')[0]}", Version(v)) for v in gcc)
    return HostRecord(
        platform=Platform.parse(platform),
        os_name=os_name,
        libc=Version("2.36"),
        cores=2,
        memory=8 * 10**9,
        driver=Version(driver) if driver else None,
        gpus=gpus,
        toolkits=toolkits,
        compilers=gnu if compilers is None else compilers,
    )


def make_python(minor: int, **facts: Any) -> PythonEnvironment:
    """CPython 3.minor in a virtual environment for Linux that has nothing installed, with other facts over these."""
    known: dict[str, Any] = {
        "executable": Path("/venv/bin/python"),
        "version": Version(f"3.{minor}.1"),
        "implementation": "CPython",
        "tag": f"cp3{minor}",
        "platform": "linux-x86_64",
        "free_threaded": False,
        "prefix": Path("/venv"),
        "purelib": Path("/venv/lib"),
        "virtual": True,
        "managed": False,
        "conda": False,
        "writable": True,
        "torch": None,
    }
    return PythonEnvironment(**known | facts)


def put_zig(toolchains: Path, program: str) -> None:
    """Put a zig that is a script into the ``toolchains`` of a depot, for this machine's platform."""

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").mkdir()
        for name in ("zig", "bin/clang++"):
            (folder / name).write_text(program)
            (folder / name).chmod(0o755)

    make_whole(toolchains / pinned_zig(this_platform(), compiling_version()).folder, fill)


_COMPILE = """#!{python} -IS
import fcntl, os, re, shutil, sys, time
argv = sys.argv[1:]
here = {folder!r}
def after(option):
    return argv[argv.index(option) + 1]
def journal(line):
    with open(os.path.join(here, "journal"), "a") as file:
        file.write(line + chr(10))
def compile(source, depfile):
    output = after("-o")
    name = os.path.basename(output).rpartition(".")[0]
    running = open(os.path.join(here, "running", name), "w")
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not output.endswith(".pch"):  # of which every command has its own
            journal("twice " + name)
    journal("start " + name)
    time.sleep({seconds})
    read = [os.path.abspath(source)]
    for header in re.findall('#include "(toy_[^"]*)"', open(source).read()):
        read.append(os.path.join(os.path.dirname(read[0]), header))
    data = open(os.path.join(here, "object.o"), "rb").read() + name.encode()
    data += b"".join(open(path, "rb").read() for path in read[1:])
    open(output, "wb").write(data)
    open(depfile, "w").write(output + " : " + " ".join(read) + chr(10))
    journal("end " + name)
"""

_NVCC = """
if "-MF" in argv:
    compile(argv[argv.index("-o") - 1], after("-MF"))
elif "-o" in argv:
    open(after("-o"), "w")
else:
    os.execv({answers!r}, [{answers!r}, *argv])
"""

_ZIG = """
if argv[0] == "clang":
    compile(argv[-1], after("-dependency-file"))
elif argv[0] == "ar":
    os.execv({ar!r}, argv)
else:
    shutil.copy(os.path.join(here, "library.so"), after("-o"))
"""


@dataclass(frozen=True)
class StandIns:
    """A folder with a CUDA toolkit, the text of a zig and their journal."""

    folder: Path

    @property
    def cuda(self) -> Path:
        return self.folder / "cuda"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that flashdepot runs with. The compilers are not confined: they keep a journal."""
        return {"FLASHDEPOT_UNCONFINED": "1"}

    def put_zig(self, toolchains: Path) -> None:
        """Put the zig where a depot keeps the one from PyPI."""
        put_zig(toolchains, (self.folder / "zig").read_text())

    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []


def make_stand_ins(folder: Path, seconds: float) -> StandIns:
    """Make the compilers; each compile takes so many seconds."""
    folder.mkdir(parents=True)
    (folder / "running").mkdir()
    empty = folder / "empty.c"
    empty.write_text("const int flashdepot_stand_in = 1;\n")
    compile_c(empty, folder / "object.o", "-c")
    exports = f"-Wl,--version-script={INCLUDE.parent / 'templates' / 'libflashattention.map'}"
    compile_c(RECORDER, folder / "library.so", "-shared", "-fPIC", "-Wl,-soname,libflashattention.so.1", exports)
    make_toolkit(folder / "cuda", "13.0")
    nvcc = folder / "cuda" / "bin" / "nvcc"
    answers = nvcc.rename(nvcc.with_name("answers"))
    python = Path(sys.executable).resolve()
    compiler = _COMPILE.format(python=python, folder=str(folder), seconds=seconds)
    nvcc.write_text(compiler + _NVCC.format(answers=str(answers)))
    nvcc.chmod(0o755)
    archiver = shutil.which("ar")
    assert archiver
    (folder / "zig").write_text(compiler + _ZIG.format(ar=archiver))
    return StandIns(folder)
