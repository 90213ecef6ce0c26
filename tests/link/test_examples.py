"""The examples build against a library that was moved, both ways, and tell right from wrong.

Without a GPU what they compute is tried on a fake driver and a fake library, which compute on the processor.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import compile_c, need_of_library, ours
from support.tools import has, tool

pytestmark = pytest.mark.nvcc

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
PROGRAMS = ("c", "cpp", "rust")
FAULTS = ("mask from the top left", "heads not grouped", "a NaN", "lse")


def clean_environment() -> dict[str, str]:
    """Ours without what points to a CUDA driver or to a library."""
    return {n: v for n, v in os.environ.items() if n != "LD_LIBRARY_PATH" and not n.startswith("FLASHDEPOT_L")}


@pytest.fixture(scope="session")
def built(
    moved_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Everything that run_all.sh builds here, and what it said."""
    folder = tmp_path_factory.mktemp("examples") / "build"
    done = subprocess.run(
        [str(EXAMPLES / "run_all.sh"), str(moved_library), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**clean_environment(), "FLASHDEPOT": f"{sys.executable} -m flashdepot"},
    )
    return folder, done


def program_of(folder: Path, language: str, kind: str) -> Path:
    path = folder / f"rust-{kind}/release/attention" if language == "rust" else folder / f"{language}-{kind}"
    if language == "rust":
        tool("cargo")
    return path


def has_driver() -> bool:
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_all_of_them_are_built_and_say_that_there_is_no_gpu(built) -> None:
    if has_driver():
        pytest.skip("this machine has an NVIDIA driver; tests/gpu has what runs there")
    _, done = built
    assert done.returncode == 77, done.stdout + done.stderr
    programs = 4 + 4 * has("cmake") + 2 * has("cargo")
    assert done.stdout.count("no NVIDIA GPU: ") == programs
    assert done.stdout.count("libflashattention: fa2 2.8.3.post2, C ABI 1.0, CUDA ") == programs
    assert f"0 right, 0 wrong, {programs} built but not run" in done.stdout


@pytest.mark.parametrize("kind", ["shared", "static"])
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_program_needs_the_shared_library_or_nothing_from_us(built, language, kind) -> None:
    program = program_of(built[0], language, kind)
    assert ours(program) == need_of_library(kind)


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver and a library that need no GPU."""
    folder = tmp_path_factory.mktemp("fakes")
    shared = ("-shared", "-fPIC", "-O2", "-std=c99")
    compile_c(HERE / "fake_driver.c", folder / "libcuda.so.1", *shared, "-D_DEFAULT_SOURCE")
    soname = "-Wl,-soname,libflashattention.so.1"
    compile_c(HERE / "fake_library.c", folder / "libflashattention.so.1", *shared, "-ffast-math", soname, "-lm")
    return folder


@pytest.fixture
def run_on_fakes(
    built: tuple[Path, subprocess.CompletedProcess[str]], fakes: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(language: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**clean_environment(), "LD_LIBRARY_PATH": str(fakes), **variables}
        program = program_of(built[0], language, "shared")
        return subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_right_result_is_called_right_with_its_error_and_speed(run_on_fakes, language) -> None:
    done = run_on_fakes(language)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == "GPU: Fake GPU, compute capability 9.0"
    assert lines[-1] == "right"
    shares = [float(share) for share in re.findall(r"([\d.]+) of what rounding allows", done.stdout)]
    assert len(shares) == 2
    assert all(0.05 < share <= 1 for share in shares), "the bound is not so wide that it finds nothing"
    # 4 x 4 x 16 x 4096^2 x 64 operations in the fake's 50 ms, and half of it.
    assert re.findall(r"([\d.]+) TFLOP/s", done.stdout) == ["5.5", "2.7"]


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        *(("FAKE_FAULT", fault, 1, "\nWRONG\n") for fault in FAULTS),
        ("FAKE_FAULT", "refusal", 1, "refused by the fake"),
        ("FAKE_NO_DEVICE", "1", 77, "--gpus all"),
    ],
)
@pytest.mark.parametrize("language", PROGRAMS)
def test_what_is_wrong_is_said_and_is_the_exit_code(run_on_fakes, language, variable, value, code, said) -> None:
    done = run_on_fakes(language, **{variable: value})
    assert done.returncode == code
    assert said in done.stdout


def test_prebuilt_programs_run_where_nothing_can_be_compiled(built, moved_library, tmp_path) -> None:
    if has_driver():
        pytest.skip("this machine has an NVIDIA driver; tests/gpu has what runs there")
    prebuilt, tools = tmp_path / "prebuilt", tmp_path / "bin"
    prebuilt.mkdir()
    tools.mkdir()
    shutil.copy(built[0] / "cpp-shared", prebuilt / "cpp-shared")
    for name in ("bash", "env", "dirname", "mkdir", "basename", "sed", "tr"):
        (tools / name).symlink_to(tool(name))
    done = subprocess.run(
        [str(EXAMPLES / "run_all.sh"), str(moved_library), str(tmp_path / "build"), "--prebuilt", str(prebuilt)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tools), "HOME": str(tmp_path)},
    )
    assert done.returncode == 77, done.stdout + done.stderr
    for left_out in ("gcc", "g++", "CMake", "Rust"):
        assert f"== left out: {left_out}" in done.stdout
    assert "== prebuilt, cpp-shared" in done.stdout
