"""run_mha of each argument list, called from C and from Rust, against double precision.

The Rust program is compiled with cargo. Where there is none, FLASHDEPOT_TEST_CANDLE_RUST names a folder with
libcandle_check35.a, 37 and 45: what this makes of candle/rust elsewhere, with any folder that has such an archive.

    FLASHDEPOT_CANDLE_FORM=35 FLASHDEPOT_CANDLE_LIB=DIR cargo build --release   # target/release/libcandle_check.a
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.link.candle_archive import SOURCES, made_archives
from flashdepot.link.library import read_library
from flashdepot.toolchain.zig import Zig

HERE = Path(__file__).parent / "candle"
NEEDED = ["-lstdc++", "-lm", "-ldl", "-lrt", "-lpthread"]


def no_zig() -> Zig:
    raise AssertionError("this machine's own tools make an archive for it")


@pytest.fixture(scope="session", params=[35, 37, 45])
def prepared(request: pytest.FixtureRequest, library_folder: Path, tmp_path_factory) -> tuple[int, Path]:
    """An argument list, and a folder with the archive for it."""
    folder: Path = tmp_path_factory.mktemp(f"candle{request.param}")
    with made_archives(read_library(library_folder), request.param, no_zig) as (archive,):
        assert callable(archive.content)
        shutil.copy(archive.content(), folder / "libflashattention.a")
    return request.param, folder


def compiled(command: list[str], **env: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr


def assert_right(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong" in done.stdout


def test_a_c_program_that_calls_run_mha_gets_right_results(prepared: tuple[int, Path]) -> None:
    archive, folder = prepared
    for form in (archive, 41) if archive == 45 else (archive,):  # 41: run_mha_v3
        program = folder / "candle_check"
        flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", f"-DFORM={form}", f"-I{SOURCES}"]
        sources = [str(HERE / "candle_check.c"), str(folder / "libflashattention.a")]
        compiled(["gcc", *flags, *sources, *NEEDED, "-o", str(program)])
        assert_right(program)


def test_a_rust_program_that_calls_run_mha_gets_right_results(prepared: tuple[int, Path]) -> None:
    form, folder = prepared
    program = folder / "rust_check"
    ready = os.environ.get("FLASHDEPOT_TEST_CANDLE_RUST")
    if ready is None and shutil.which("cargo") is None:
        pytest.skip("needs cargo, or FLASHDEPOT_TEST_CANDLE_RUST with the program built elsewhere")
    library = Path(ready) / f"libcandle_check{form}.a" if ready else cargo_build(form, folder)
    main = ["gcc", str(HERE / "rust_main.c"), str(library), str(folder / "libflashattention.a")]
    compiled([*main, *NEEDED, "-o", str(program)])
    assert_right(program)


def cargo_build(form: int, folder: Path) -> Path:
    """Compile the Rust program, apart from its sources, and return its static library."""
    crate = shutil.copytree(HERE / "rust", folder / "rust")
    env = {"FLASHDEPOT_CANDLE_LIB": str(folder), "FLASHDEPOT_CANDLE_FORM": str(form)}
    manifest = ["--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(folder / "target")]
    compiled(["cargo", "build", "--release", "--offline", "--quiet", *manifest], **env)
    return folder / "target" / "release" / "libcandle_check.a"
