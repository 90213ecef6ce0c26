"""Compiling small C programs and libraries against flash_attention.h."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from flashdepot.wheel.contents import RUNTIME

INCLUDE = RUNTIME.parents[1] / "native" / "include"
RECORDER = Path(__file__).parent / "recorder.c"


def compile_c(source: Path, output: Path, *options: str) -> Path:
    command = [shutil.which("gcc") or "cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", *options]
    done = subprocess.run([*command, str(source), "-o", str(output)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def compile_recorder(folder: Path) -> Path:
    """Compile the libflashattention that computes nothing."""
    return compile_c(RECORDER, folder / "librecorder.so", "-shared", "-fPIC")
