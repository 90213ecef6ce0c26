"""run_mha over a library that only records: compiled, loaded, and asked in processes of their own."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from candle_call import V3, Mha

from flashdepot.link.candle_archive import SOURCES, sources_of
from support.fa_abi import ForwardArgs
from support.programs import INCLUDE
from support.tools import run_program

HERE = Path(__file__).parent


class Recorded(Mha):
    """run_mha over recorder.c."""

    def reset(self, fails: str = "", workspace: int = 0) -> None:
        self.library.recorder_reset(fails.encode(), ctypes.c_uint64(workspace))

    def calls(self) -> list[str]:
        """What was asked of the library and of CUDA, in order: name(stream,address,bytes)."""
        self.library.recorder_calls.restype = ctypes.c_char_p
        text: bytes = self.library.recorder_calls()
        return text.decode().split()

    def args(self) -> ForwardArgs:
        """The arguments of the last fa_fwd."""
        self.library.recorder_args.restype = ctypes.POINTER(ForwardArgs)
        args: ForwardArgs = self.library.recorder_args().contents
        return args


def compile_over_recorder(form: int, library: Path, *options: str, with_candles: bool = False) -> Path:
    archive = 45 if form == V3 else form
    sources = [str(SOURCES / name) for name in sources_of(archive, with_candles=with_candles)]
    command = ["gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fPIC", "-shared"]
    command += [f"-I{INCLUDE}", *sources, str(HERE / "recorder.c"), *options, "-o", str(library)]
    run_program(command)
    return library


def python_here(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code that can import what the tests of this folder can."""
    paths = [str(HERE), *sys.path]
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath, "HOME": os.environ["HOME"], "PYTHONPATH": os.pathsep.join(paths), **env},
    )
