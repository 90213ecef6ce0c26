"""Compiling small C programs and libraries against flash_attention.h."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from flashdepot.wheel.builder import RUNTIME

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


def compile_recorder_for_xla(folder: Path, output: Path) -> None:
    """Compile the libflashattention that computes nothing, with the handler that XLA calls."""
    (folder / "cuda_runtime_api.h").write_text(
        "#pragma once\nenum { cudaSuccess };\ninline int cudaGetDevice(int *device) { return *device = 0; }\n"
    )
    recorder = compile_c(RECORDER, folder / "recorder.o", "-c", "-fPIC")
    handler = RUNTIME.parents[1] / "native" / "src" / "xla.cpp"
    flags = ["-std=c++17", "-shared", "-fPIC", f"-I{INCLUDE}", f"-I{folder}"]
    command = ["g++", *flags, str(handler), str(recorder), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
