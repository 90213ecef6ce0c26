"""An nvcc and a host compiler that take their time and compile nothing, for tests of what goes on around them.

They are in the folder ``compilers`` of what :func:`make_stand_ins` gets. Each compile appends lines to ``journal``:
``start NAME``, ``end NAME``, and ``twice NAME`` when the same source is being compiled by another process.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from support.c_compiler import INCLUDE, RECORDER, compile_c
from support.fake_cuda import make_toolkit

_COMPILE = """#!{python} -IS
import fcntl, os, re, shutil, sys, time
words = sys.argv[1:]
here = {folder!r}
def after(option):
    return words[words.index(option) + 1]
def journal(line):
    with open(os.path.join(here, "journal"), "a") as file:
        file.write(line + chr(10))
def compile():
    source, output = after("-c"), after("-o")
    name = os.path.basename(source).rpartition(".")[0]
    running = open(os.path.join(here, "running", name), "w")
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        journal("twice " + name)
    journal("start " + name)
    time.sleep({seconds})
    read = [os.path.abspath(source)]
    for header in re.findall('#include "(toy_[^"]*)"', open(source).read()):
        read.append(os.path.join(os.path.dirname(read[0]), header))
    data = open(os.path.join(here, "object.o"), "rb").read() + name.encode()
    data += b"".join(open(path, "rb").read() for path in read[1:])
    open(output, "wb").write(data)
    if "-MF" in words:
        open(after("-MF"), "w").write(output + " : " + " ".join(read) + chr(10))
    journal("end " + name)
"""

_NVCC = """
if "-c" in words:
    compile()
else:
    os.execv({answers!r}, [{answers!r}, *words])
"""

_HOST = """
if "-c" in words:
    compile()
elif "-shared" in words:
    shutil.copy(os.path.join(here, "library.so"), after("-o"))
else:
    os.execv({real!r}, [{real!r}, *words])
"""


@dataclass(frozen=True)
class StandIns:
    """A folder with a CUDA toolkit, a host compiler and their journal."""

    folder: Path

    @property
    def cuda(self) -> Path:
        return self.folder / "cuda"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which flashdepot takes these compilers. They are not confined: they keep a journal."""
        return {"NVCC_CCBIN": str(self.folder / "bin" / "g++"), "FLASHDEPOT_UNCONFINED": "1"}

    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []


def make_stand_ins(folder: Path, seconds: float) -> StandIns:
    """Make the compilers; each compile takes so many seconds."""
    folder.mkdir(parents=True)
    (folder / "running").mkdir()
    (folder / "bin").mkdir()
    empty = folder / "empty.c"
    empty.write_text("const int flashdepot_stand_in = 1;\n")
    compile_c(empty, folder / "object.o", "-c")
    exports = f"-Wl,--version-script={INCLUDE.parent / 'templates' / 'libflashattention.map'}"
    compile_c(RECORDER, folder / "library.so", "-shared", "-fPIC", "-Wl,-soname,libflashattention.so.1", exports)
    make_toolkit(folder / "cuda", "13.0")
    nvcc = folder / "cuda" / "bin" / "nvcc"
    answers = nvcc.rename(nvcc.with_name("answers"))
    real = shutil.which("g++")
    assert real, "a real g++ says which version the stand-in is"
    python = Path(sys.executable).resolve()
    compiler = _COMPILE.format(python=python, folder=str(folder), seconds=seconds)
    nvcc.write_text(compiler + _NVCC.format(answers=str(answers)))
    host = folder / "bin" / "g++"
    host.write_text(compiler + _HOST.format(real=real))
    for program in (nvcc, host):
        program.chmod(0o755)
    return StandIns(folder)
