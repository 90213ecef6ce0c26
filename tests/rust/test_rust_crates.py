"""The crates in `rust/`, as they would be published."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CRATES = ROOT / "rust"

sys.path.insert(0, str(ROOT / "scripts"))
from renew_rust_bindings import CRATE, shared_texts  # noqa: E402  (a script, and no module)

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
HAS_CUDARC = any((Path.home() / ".cargo/registry/src").glob("*/cudarc-0.19*"))


@pytest.mark.parametrize(("place", "text"), shared_texts().items(), ids=shared_texts())
def test_the_published_bindings_are_those_of_the_header(place: str, text: str) -> None:
    assert (CRATE / place).read_text("utf-8") == text, "run scripts/renew_rust_bindings.py"


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nothing is written into the repository."""
    return Path(shutil.copytree(CRATES, tmp_path_factory.mktemp("rust") / "rust"))


def cargo(crates: Path, library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FLASHDEPOT_LIB_DIR": str(library), "CARGO_TARGET_DIR": str(crates / "target")}
    command = ["cargo", *arguments, "--offline", "--locked", "-j1"]
    return subprocess.run(command, cwd=crates, env=env, capture_output=True, text=True, check=False)


@pytest.mark.nvcc
@needs_cargo
def test_their_own_tests_pass_over_a_library(crates: Path, quick_library: Path) -> None:
    done = cargo(crates, quick_library, "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what_is_wrong_is_named_with_its_value ... ok" in done.stdout
    assert "warning" not in done.stderr


@pytest.mark.nvcc
@needs_cargo
def test_clippy_finds_nothing_not_even_pedantically(crates: Path, quick_library: Path) -> None:
    if subprocess.run(["cargo", "clippy", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs clippy")
    done = cargo(crates, quick_library, "clippy", "--all-targets")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@pytest.mark.nvcc
@needs_cargo
@pytest.mark.skipif(not HAS_CUDARC, reason="Cargo has unpacked no cudarc here")
def test_the_program_in_the_readme_compiles_as_printed(crates: Path, quick_library: Path) -> None:
    done = cargo(crates, quick_library, "test", "--doc", "-p", "flashattention", "--features", "cudarc")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test flashattention/src/lib\.rs - \(line \d+\) - compile \.\.\. ok", done.stdout), done.stdout
