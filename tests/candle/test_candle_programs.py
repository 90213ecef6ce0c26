"""The programs of tests/gpu/candle, over a library that computes on the host: what run_mha is asked is what it gives."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.link.candle_archive import SOURCES, sources_of
from support.programs import INCLUDE
from support.tools import tool

HERE = Path(__file__).parent
CHECK = HERE.parent / "gpu" / "candle" / "candle_check.c"
PROBLEMS = {35: 18, 37: 20, 41: 18, 45: 26}
ARCHIVE = {41: 45}  # run_mha_v3


def run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libcuda.so.1 of the host."""
    folder = tmp_path_factory.mktemp("driver")
    done = run(["gcc", "-shared", "-fPIC", str(HERE / "host_driver.c"), "-o", str(folder / "libcuda.so.1")])
    assert done.returncode == 0, done.stderr
    return folder


def compile_check(form: int, folder: Path, *options: str) -> Path:
    program = folder / "candle_check"
    sources = [CHECK, HERE / "host_library.c", *(SOURCES / name for name in sources_of(ARCHIVE.get(form, form)))]
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", f"-DFORM={form}", f"-I{INCLUDE}"]
    done = run(["gcc", *flags, f"-I{SOURCES}", *options, *map(str, sources), "-lm", "-ldl", "-o", str(program)])
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("form", PROBLEMS)
def test_every_problem_agrees_with_double_precision_and_no_byte_outside_a_buffer_is_touched(
    form, driver, tmp_path
) -> None:
    program = compile_check(form, tmp_path, "-fsanitize=address")
    done = run([str(program)], LD_LIBRARY_PATH=str(driver), ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    probes = 5 if form == 37 else 4 if form == 35 else 0
    assert f"{PROBLEMS[form]} right, 0 wrong" in done.stdout
    assert done.stdout.count(": ok") == PROBLEMS[form] + probes
    assert "d is 512" in done.stdout
    assert "; 0 numbers left in the output" in done.stdout


def test_a_library_that_masks_one_key_too_many_is_found_out(driver, tmp_path) -> None:
    done = run([str(compile_check(45, tmp_path, "-DWRONG"))], LD_LIBRARY_PATH=str(driver))
    assert done.returncode == 1
    assert "WRONG" in done.stdout


@pytest.mark.parametrize("form", [35, 37, 45])
def test_the_rust_program_agrees_as_well(form, driver, tmp_path) -> None:
    tool("cargo")
    objects = []
    for source in (HERE / "host_library.c", *(SOURCES / name for name in sources_of(form))):
        objects.append(str(tmp_path / f"{source.stem}.o"))
        done = run(["gcc", "-std=c99", "-O2", "-fPIC", f"-I{INCLUDE}", "-c", str(source), "-o", objects[-1]])
        assert done.returncode == 0, done.stderr
    assert run(["ar", "rcs", str(tmp_path / "libflashattention.a"), *objects]).returncode == 0
    crate = shutil.copytree(CHECK.parent / "rust", tmp_path / "rust")
    env = {"FLASHDEPOT_CANDLE_LIB": str(tmp_path), "FLASHDEPOT_CANDLE_FORM": str(form), "RUSTFLAGS": "-D warnings"}
    command = ["cargo", "run", "--release", "--offline", "--quiet", "--manifest-path", str(crate / "Cargo.toml")]
    done = run(command, LD_LIBRARY_PATH=str(driver), **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ {35: 7, 37: 9, 45: 11}[form] } right, 0 wrong" in done.stdout
