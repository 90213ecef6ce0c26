"""A C program over the library, linked both ways, and under compute-sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WARNINGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]


def cudart_folder(root: Path) -> Path:
    for name in ("lib64", "lib", "targets/x86_64-linux/lib"):
        if (root / name / "libcudart_static.a").is_file():
            return root / name
    pytest.skip(f"{root} has no libcudart_static.a")


@pytest.fixture(
    scope="session",
    params=[("forward_check", "shared"), ("forward_check", "static"), ("entry_points", "shared")],
    ids="-".join,
)
def program(request: pytest.FixtureRequest, library_folder: Path, cuda_root: Path, tmp_path_factory) -> Path:
    """A program, linked with the line that the library's documentation gives."""
    name, kind = request.param
    lib = library_folder / "lib" / kind
    cudart = ["-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    link = {
        "shared": [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lflashattention", *cudart],
        "static": [str(lib / "libflashattention.a"), *cudart, "-lstdc++"],
    }[kind]
    program: Path = tmp_path_factory.mktemp(kind) / name
    include = [f"-I{library_folder / 'include'}", "-isystem", str(cuda_root / "include")]
    command = [
        "gcc",
        *WARNINGS,
        *include,
        str(HERE / f"{name}.c"),
        "-o",
        str(program),
        f"-L{cudart_folder(cuda_root)}",
        *link,
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_a_c_program_gets_right_results(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong" in done.stdout


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_the_sanitizer_finds_nothing(program: Path, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    # initcheck before CUDA 13.1 does not see what fa4's kernels write, which is by cp.async.bulk
    family = ["fa2"] if tool == "initcheck" else []
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", str(program), "--small", *family]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if "Device not supported" in done.stdout + done.stderr:
        pytest.skip("compute-sanitizer does not support this device here")
    if "family is 2 (fa2), which is not in this library" in done.stdout:
        pytest.skip("initcheck is for fa2, which this library has not")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed (0 errors, 0 warnings)" in done.stdout
