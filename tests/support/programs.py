"""Programs in C and Rust over flash_attention.h: compiling them, and what they need."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from flashdepot.wheel.builder import RUNTIME
from support.tools import run_program, tool

INCLUDE = RUNTIME.parents[1] / "native" / "include"
RECORDER = Path(__file__).parent / "recorder.c"


def compile_c(source: Path, output: Path, *options: str) -> Path:
    command = [
        tool("gcc" if shutil.which("gcc") else "cc"),
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        *options,
    ]
    run_program([*command, str(source), "-o", str(output)])
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
    run_program(command)


def needed(program: Path) -> list[str]:
    """The sonames of ``readelf -d``, in their order."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run_program(["readelf", "-d", str(program)]))


def need_of_library(kind: str) -> list[str]:
    """Which of our libraries a program needs, linked one way or the other."""
    return ["libflashattention.so.1"] if kind == "shared" else []


def ours(program: Path) -> list[str]:
    """The sonames among them that are ours or CUDA's: the ones that a user would have to bring along."""
    return [name for name in needed(program) if "flashattention" in name or "cuda" in name]


STAND_IN = Path(__file__).parents[1] / "candle" / "stand_in"


def write_stand_in(folder: Path, version: str, build_dependencies: str = "") -> Path:
    """The crate, with two kernel sources."""
    shutil.copytree(STAND_IN, folder)
    manifest = folder / "Cargo.toml"
    text = manifest.read_text().replace("@VERSION@", version).replace("@BUILD_DEPENDENCIES@", build_dependencies)
    manifest.write_text(text)
    (folder / "kernels").mkdir()
    for name in ("flash_api.cu", "flash_fwd_kernel.h"):
        (folder / "kernels" / name).write_text("// a kernel\n")
    return folder


def write_program(folder: Path, dependency: str, more: str = "") -> Path:
    """A program that calls the crate once."""
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2021"\n\n'
        f"[dependencies]\n{dependency}\n\n{more}\n\n[workspace]\n"
    )
    (folder / "src" / "main.rs").write_text("fn main() {\n    candle_flash_attn::attention();\n}\n")
    return folder


def cargo_run(project: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Build and run it offline."""
    command = ["cargo", "run", "--offline", "--quiet", "--manifest-path", str(project / "Cargo.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
