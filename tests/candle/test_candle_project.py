"""What `link candle` reads of a Cargo project, and what it adds to the project's `.cargo/config.toml`."""

import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.errors import UsageError
from flashdepot.files.documents import parse_toml
from flashdepot.link.candle_archive import link_only_manifest
from flashdepot.link.candle_project import (
    CONFIG,
    CandleSetup,
    config_text,
    read_candle_project,
    read_setup,
    switches,
    write_config,
)
from support.tools import needs

REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
GIT = "git+https://github.com/huggingface/candle?rev=59f8e90#59f8e903ca80a32ea7f8514b39748fc979e69e82"
ENVIRONMENT = """[env]
# ours, since the last cluster
NVCC_CCBIN = "g++-12"

[build]
jobs = 4
"""


def write_lock(folder: Path, *packages: tuple[str, str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    entries = (
        f'[[package]]\nname = "{n}"\nversion = "{v}"\n' + (f'source = "{s}"\n' if s else "") for n, v, s in packages
    )
    (folder / "Cargo.lock").write_text("version = 4\n\n" + "\n".join(entries))
    return folder


def test_the_version_is_read_from_the_lock_file_above_the_folder(tmp_path) -> None:
    root = write_lock(tmp_path / "p", ("candle-core", "0.9.1", REGISTRY), ("candle-flash-attn", "0.9.1", REGISTRY))
    (root / "src").mkdir()
    found = read_candle_project(root / "src")
    assert (found.root, found.version, found.features) == (root, "0.9.1", ())


def test_the_crate_of_version_3_is_read_where_it_is_the_only_one_or_named(tmp_path) -> None:
    v3 = ("candle-flash-attn-v3", "0.11.1", REGISTRY)
    only = read_candle_project(write_lock(tmp_path / "only", v3))
    both = write_lock(tmp_path / "both", v3, ("candle-flash-attn", "0.11.1", REGISTRY))
    named = read_candle_project(both, "candle-flash-attn-v3")
    assert (only.crate, named.crate, read_candle_project(both).crate) == (v3[0], v3[0], "candle-flash-attn")
    setup = CandleSetup(both / "prebuilt/v3", crate=named.crate)
    write_config(both, setup)
    assert read_setup(both, {}) is None
    found = read_setup(both, {}, named.crate)
    assert found is not None
    assert (found.folder, found.crate) == (setup.folder, named.crate)


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ([("serde", "1.0.0", REGISTRY)], "has no candle-flash-attn"),
        (
            [("candle-flash-attn", "0.8.4", REGISTRY), ("candle-flash-attn", "0.9.1", REGISTRY)],
            "candle-flash-attn 0.8.4 and 0.9.1",
        ),
    ],
)
def test_a_lock_file_that_names_no_single_crate_is_refused(tmp_path, packages, said) -> None:
    with pytest.raises(UsageError, match=said):
        read_candle_project(write_lock(tmp_path / "p", *packages))


def test_a_folder_without_a_lock_file_learns_how_to_get_one(tmp_path) -> None:
    with pytest.raises(UsageError, match="is not a Cargo project"):
        read_candle_project(tmp_path)
    (tmp_path / "Cargo.toml").write_text("[package]\n")
    with pytest.raises(UsageError) as caught:
        read_candle_project(tmp_path)
    assert caught.value.hint == "cargo fetch"


def test_candle_from_git_is_found_in_its_checkout_with_the_words_of_its_source(tmp_path) -> None:
    project = read_candle_project(write_lock(tmp_path / "p", ("candle-flash-attn", "0.11.1", GIT)))
    crate = tmp_path / "home/git/checkouts/candle-1234/59f8e90/candle-flash-attn"
    crate.mkdir(parents=True)
    (crate / "Cargo.toml").touch()
    assert project.sources(tmp_path / "home") == crate
    assert project.git == {"git": "https://github.com/huggingface/candle", "rev": "59f8e90"}


CORE = '[package]\nname = "candle-core"\nversion = "0.11.1"\nedition = "2021"\n'
FLASH = """[package]
name = "candle-flash-attn"
version = "0.11.1"
edition = "2021"
[dependencies]
candle = { path = "../candle-core", package = "candle-core" }
[build-dependencies]
candle-nn = { path = "../candle-nn" }
"""


@needs("cargo", "git")
def test_a_crate_from_git_is_replaced_and_keeps_the_rest_of_candle_from_there(tmp_path) -> None:
    repository, root = tmp_path / "candle", tmp_path / "program"
    for name, manifest, library in (
        ("candle-core", CORE, "pub struct Tensor;"),
        ("candle-nn", CORE.replace("core", "nn"), ""),
        ("candle-flash-attn", FLASH, "pub fn attend(_: candle::Tensor) {}"),
    ):
        (repository / name / "src").mkdir(parents=True)
        (repository / name / "Cargo.toml").write_text(manifest)
        (repository / name / "src/lib.rs").write_text(library)
    (repository / "candle-flash-attn/build.rs").write_text('fn main() { panic!("it would compile kernels") }')

    def run(*words: str | Path, cwd: Path = root) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)

    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "1"], ["tag", "0.11.1"]):
        assert run("git", *words, cwd=repository).returncode == 0
    (root / "src").mkdir(parents=True)
    (root / "src/main.rs").write_text("fn main() { candle_flash_attn::attend(candle_core::Tensor) }")
    source = f'{{ git = "file://{repository}", tag = "0.11.1" }}'
    dependencies = f"[dependencies]\ncandle-core = {source}\ncandle-flash-attn = {source}\n"
    (root / "Cargo.toml").write_text(
        f'[package]\nname = "program"\nversion = "1.0.0"\nedition = "2021"\n{dependencies}'
    )
    assert "it would compile kernels" in run("cargo", "build").stderr

    git = read_candle_project(root).git
    crate = root / "prebuilt"
    shutil.copytree(repository / "candle-flash-attn/src", crate / "src")
    (crate / "Cargo.toml").write_text(link_only_manifest(FLASH, git))
    setup = CandleSetup(crate, replaces=git["git"])
    write_config(root, setup)
    done = run("cargo", "build")
    assert done.returncode == 0, done.stderr
    assert run("cargo", "tree", "-i", "candle-core").stdout.count(f"file://{repository}") == 1
    found = read_setup(root, {})
    assert found is not None
    assert (found.folder, found.replaces) == (crate, git["git"])


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ('[dependencies]\ncandle-flash-attn = "0.9.1"', ()),
        ('[dependencies]\ncandle-flash-attn = { version = "0.9.1", optional = true }', ("candle-flash-attn",)),
        (
            (
                '[dependencies]\ncandle-flash-attn = { version = "0.9.1", optional = true }\n'
                '[features]\nflash-attn = ["dep:candle-flash-attn"]'
            ),
            ("flash-attn",),
        ),
        (
            (
                '[dependencies]\ncandle-flash-attn = { version = "0.9.1", optional = true }\n'
                '[features]\ndefault = ["flash"]\nflash = ["dep:candle-flash-attn"]'
            ),
            (),
        ),
    ],
)
def test_the_feature_that_switches_it_on_is_named(manifest, expected) -> None:
    assert switches(parse_toml(manifest, "Cargo.toml"), "candle-flash-attn") == expected


@pytest.mark.parametrize("before", ["", ENVIRONMENT], ids=["new file", "file with tables"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside the project", "elsewhere"])
def test_what_is_added_is_read_back_and_the_rest_stays(tmp_path, before, inside) -> None:
    root = tmp_path / "project"
    (root / ".cargo").mkdir(parents=True)
    (root / CONFIG).write_text(before)
    folder = (root if inside else tmp_path) / "prebuilt" / "it"
    setup = CandleSetup(folder)

    write_config(root, setup)

    found = read_setup(root, {})
    assert found is not None
    assert found.folder == folder
    after = (root / CONFIG).read_text()
    assert all(line in after for line in before.splitlines())
    assert (tmp_path.as_posix() in after) is not inside  # a project that moves takes its set-up along
    write_config(root, setup)
    assert (root / CONFIG).read_text() == after


def test_a_line_that_says_otherwise_is_not_replaced(tmp_path) -> None:
    mine = '[patch.crates-io]\ncandle-flash-attn = { path = "/mine" }\n'
    with pytest.raises(UsageError, match="already says candle-flash-attn = "):
        config_text(mine, CandleSetup(tmp_path), tmp_path)
    with pytest.raises(UsageError, match="is not valid TOML"):
        config_text("[env\n", CandleSetup(tmp_path), tmp_path)


def test_the_environment_wins_over_the_file_unless_that_forces_its_own(tmp_path) -> None:
    (tmp_path / ".cargo").mkdir()

    def seen(said: str, **variables: str) -> str:
        (tmp_path / CONFIG).write_text(
            f'[env]\nCUDA_COMPUTE_CAP = {said}\n[patch.crates-io]\ncandle-flash-attn = {{ path = "here" }}\n'
        )
        found = read_setup(tmp_path, variables)
        assert found is not None
        return found.compute_cap

    assert (seen('"80"'), seen('"80"', CUDA_COMPUTE_CAP="90")) == ("80", "90")
    assert seen('{ value = "80", force = true }', CUDA_COMPUTE_CAP="90") == "80"
