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
OPTIONAL = re.compile(r"^.* optional = true.*\n|(?<= = )\[(?:\"dep:cudarc|\"cudarc\").*\]", re.MULTILINE)
"""The optional dependencies of a Cargo.toml, and what its features bring of them."""


@pytest.mark.parametrize(("place", "text"), shared_texts().items(), ids=shared_texts())
def test_the_published_bindings_are_those_of_the_header(place: str, text: str) -> None:
    assert (CRATE / place).read_text("utf-8") == text, "run scripts/renew_rust_bindings.py"


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that needs no registry: without the features that bring other crates."""
    copy = Path(shutil.copytree(CRATES, tmp_path_factory.mktemp("rust") / "rust"))
    (copy / "Cargo.lock").unlink()
    manifest = copy / "flashattention/Cargo.toml"
    manifest.write_text(
        OPTIONAL.sub(lambda found: "[]" if found[0].startswith("[") else "", manifest.read_text("utf-8"))
    )
    return copy


def cargo(crates: Path, library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FLASHDEPOT_LIB_DIR": str(library), "CARGO_TARGET_DIR": str(crates / "target")}
    env |= {"CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}  # nobody builds it again, or debugs it
    return subprocess.run(
        ["cargo", *arguments, "-j1"], cwd=crates, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.nvcc
@needs_cargo
def test_their_own_tests_pass_over_a_library(crates: Path, quick_library: Path) -> None:
    done = cargo(crates, quick_library, "test", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what_is_wrong_is_named_with_its_value ... ok" in done.stdout
    assert "warning" not in done.stderr


@pytest.mark.nvcc
@needs_cargo
def test_clippy_finds_nothing_not_even_pedantically(crates: Path, quick_library: Path) -> None:
    if subprocess.run(["cargo", "clippy", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs clippy")
    done = cargo(crates, quick_library, "clippy", "--all-targets", "--offline")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@pytest.mark.nvcc
@pytest.mark.network
@needs_cargo
def test_the_program_in_the_readme_compiles_as_printed(quick_library: Path, tmp_path: Path) -> None:
    crates = Path(shutil.copytree(CRATES, tmp_path / "rust"))
    done = cargo(crates, quick_library, "test", "--locked", "--doc", "-p", "flashattention", "--features", "cudarc")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test flashattention/src/lib\.rs - \(line \d+\) - compile \.\.\. ok", done.stdout), done.stdout
