"""An nvcc and a zig that take their time and compile nothing, for tests of what goes on around them.

They are in the folder that :func:`make_stand_ins` gets. Each compile appends lines to ``journal``:
``start NAME``, ``end NAME``, and ``twice NAME`` when the same is being compiled by another process.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from support.c_compiler import INCLUDE, RECORDER, compile_c
from support.fake_cuda import make_toolkit
from support.stand_in_zig import put_zig

_COMPILE = """#!{python} -IS
import fcntl, os, re, shutil, sys, time
words = sys.argv[1:]
here = {folder!r}
def after(option):
    return words[words.index(option) + 1]
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
if "-MF" in words:
    compile(words[words.index("-o") - 1], after("-MF"))
elif "-o" in words:
    open(after("-o"), "w")
else:
    os.execv({answers!r}, [{answers!r}, *words])
"""

_ZIG = """
if words[0] == "clang":
    compile(words[-1], after("-dependency-file"))
elif words[0] == "ar":
    os.execv({ar!r}, words)
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
