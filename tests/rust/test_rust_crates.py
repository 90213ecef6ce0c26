"""The crates in `rust/`, as they would be published."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import needs

ROOT = Path(__file__).parents[2]
CRATES = ROOT / "rust"
SYS = ROOT / "src/flashdepot/link/crate"

sys.path.insert(0, str(ROOT / "scripts"))
import renew_abi  # noqa: E402  (a script, and no module)

OPTIONAL = re.compile(r"^.* optional = true.*\n|(?<= = )\[(?:\"dep:cudarc|\"cudarc\").*\]", re.MULTILINE)
"""The optional dependencies of a Cargo.toml, and what its features bring of them."""


def test_the_bindings_are_those_of_the_header() -> None:
    written = renew_abi.bindings(renew_abi.HEADER.read_text("utf-8"))
    assert renew_abi.BINDINGS.read_text("utf-8") == written, "run scripts/renew_abi.py"


def test_every_name_that_c_declares_is_bound() -> None:
    header = re.sub(r"/\*.*?\*/", "", renew_abi.HEADER.read_text("utf-8"), flags=re.DOTALL)
    bound = renew_abi.BINDINGS.read_text("utf-8")
    declared = set(re.findall(r"\b(fa_\w+)\([^()]*\) FA_NOEXCEPT;", header))
    for_xla = {"fa_xla_call"}  # its parameters are structs of XLA, which the bindings do not have
    assert declared - for_xla == set(re.findall(r"pub fn (\w+)\(", bound))
    assert for_xla < declared
    assert set(re.findall(r"\b(FA_[A-Z0-9_]+) = ", header)) <= set(re.findall(r"pub const (\w+):", bound))
    assert set(re.findall(r"typedef struct (fa_\w+)", header)) == set(re.findall(r"pub struct (\w+) ", bound))


def copied(place: Path) -> Path:
    """Both crates, as they lie to each other."""
    shutil.copytree(SYS, place / SYS.relative_to(ROOT))
    return Path(shutil.copytree(CRATES, place / "rust", ignore=shutil.ignore_patterns("target")))


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that needs no registry: without the features that bring other crates."""
    copy = copied(tmp_path_factory.mktemp("rust"))
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
@needs("cargo")
def test_their_own_tests_pass_over_a_library(crates, quick_library) -> None:
    done = cargo(crates, quick_library, "test", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what_is_wrong_is_named_with_its_value ... ok" in done.stdout
    assert "warning" not in done.stderr


@pytest.mark.nvcc
@needs("cargo", "cargo-clippy")
def test_clippy_finds_nothing_not_even_pedantically(crates, quick_library) -> None:
    done = cargo(crates, quick_library, "clippy", "--all-targets", "--offline")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@needs("cargo", "cargo-clippy")
@pytest.mark.parametrize("command", [["clippy", "--lib"], ["doc", "--no-deps"]])
def test_checks_and_pages_need_no_library_and_hear_once_that_there_is_none(crates, command) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLASHDEPOT_L")}
    env |= {
        "FLASHDEPOT": "/nowhere/flashdepot",
        "CARGO_TARGET_DIR": str(crates / "bare"),
        "RUSTDOCFLAGS": "-D warnings",
    }
    done = subprocess.run(
        ["cargo", *command, "--offline", "-j1"], cwd=crates, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1, done.stderr
    assert "no library was named, and '/nowhere/flashdepot' cannot be run" in warnings[0]


@pytest.mark.nvcc
@pytest.mark.network
@needs("cargo")
def test_the_program_in_the_readme_compiles_as_printed(quick_library, tmp_path) -> None:
    crates = copied(tmp_path)
    done = cargo(crates, quick_library, "test", "--locked", "--doc", "-p", "flashattention", "--features", "cudarc")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test flashattention/src/lib\.rs - \(line \d+\) - compile \.\.\. ok", done.stdout), done.stdout
