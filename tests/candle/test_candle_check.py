"""`link candle --check`: what a build would stumble over is found before cargo runs."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.host.probe import runtime_facts
from flashdepot.model.host import Gpu
from flashdepot.model.target import Architecture
from support.programs import write_stand_in
from support.tools import assert_ends, flashdepot_here, tool

VERSION = "0.9.1"
SIZE = 240_687_188
MARKED = "void run_mha(void) {{}}\nconst int fa_candle_arguments_{0} = {0};\n"


def compiled(folder: Path, code: str, *flags: str, compiler: str = "gcc") -> Path:
    """An archive of one object, made by a real compiler."""
    source, built, archive = (folder / name for name in ("a.c", "a.o", "libflashattention_candle.a"))
    source.write_text(code)
    subprocess.run([compiler, *flags, "-c", str(source), "-o", str(built)], check=True)
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(archive), str(built)], check=True)
    return archive


class Project:
    """A Cargo project whose set-up can be damaged, and what is then said of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.built = root / "project", root / "home", root / "project" / "prebuilt"
        self.lib = self.built / "lib" / str(runtime_facts().platform)
        self.lib.mkdir(parents=True)
        (self.built / "Cargo.toml").write_text(f'[package]\nname = "candle-flash-attn"\nversion = "{VERSION}"\n')
        write_stand_in(self.home / f"registry/src/index-1/candle-flash-attn-{VERSION}", VERSION)
        lock = f'version = 4\n\n[[package]]\nname = "candle-flash-attn"\nversion = "{VERSION}"\nsource = "registry+x"\n'
        (self.root / "Cargo.lock").write_text(lock)
        (self.root / ".cargo").mkdir()
        (self.root / ".cargo/config.toml").write_text('[patch.crates-io]\ncandle-flash-attn = { path = "prebuilt" }\n')
        self.archive = compiled(self.lib, MARKED.format(37))

    def candle(self, *options: object, **env: str) -> subprocess.CompletedProcess[str]:
        return flashdepot_here("link", "candle", *options, cwd=self.root, CARGO_HOME=str(self.home), **env)

    def check(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.candle("--check", *options, **env)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in [name for name in os.environ if name.startswith(("CARGO_TARGET", "CUDA_COMP"))]:
        monkeypatch.delenv(name)
    return Project(tmp_path)


def pointer(project: Project) -> None:
    project.archive.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {SIZE}\n")


def truncated(project: Project) -> None:
    project.archive.write_bytes(project.archive.read_bytes()[:-200])


def of_another_version(project: Project) -> None:
    compiled(project.lib, MARKED.format(45))


def for_another_cpu(project: Project) -> None:
    compiled(project.lib, MARKED.format(37), "-m32")


def for_windows(project: Project) -> None:
    compiled(project.lib, MARKED.format(37), compiler="x86_64-w64-mingw32-gcc")


def somebody_elses(project: Project) -> None:
    compiled(project.lib, "void run_mha(void) {}\n")


def without_the_function(project: Project) -> None:
    compiled(project.lib, "void fa_fwd(void) {}\n")


def emptied(project: Project) -> None:
    project.archive.write_bytes(b"")


def a_download_page(project: Project) -> None:
    project.archive.write_text("<!DOCTYPE html><title>Not found</title>")


def missing(project: Project) -> None:
    project.archive.unlink()


def removed(project: Project) -> None:
    shutil.rmtree(project.built)


def changed(project: Project) -> None:
    files = {project.archive.relative_to(project.built).as_posix(): "0" * 64}
    text = json.dumps({"schema": 1, "kind": "files that flashdepot wrote here", "files": files})
    (project.built / ".flashdepot-candle-crate.json").write_text(text)


def test_a_set_up_that_holds_is_said_to_hold(project) -> None:
    done = project.check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"candle-flash-attn {VERSION} takes the library in {project.built}" in done.stdout


@pytest.mark.parametrize(
    ("damage", "said", "fix"),
    [
        (pointer, "is a Git LFS pointer for a file of 240.7 MB", "git lfs install && git lfs pull"),
        (truncated, "is cut off or damaged", "flashdepot link candle --write"),
        (of_another_version, "has run_mha with 45 arguments, and candle-flash-attn 0.9.1 wants that of 37", "--write"),
        (for_another_cpu, "is for linux-i686, and this is a build for linux-x86_64", "--target linux-x86_64"),
        (for_windows, "is for windows-x86_64, and this is a build for linux-x86_64", "--target linux-x86_64"),
        (somebody_elses, "which version of candle its run_mha is for cannot be determined", "--write"),
        (without_the_function, "has no run_mha", "--write"),
        (emptied, "is not a static library: empty file", "--write"),
        (a_download_page, "is not a static library: web page", "--write"),
        (missing, "cannot be read: No such file", "--write"),
        (removed, "prebuilt is not there, and [patch.crates-io] in .cargo/config.toml names it", "--write"),
        (changed, "was changed since it was written", "--write"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_wrong_is_named_with_its_fix(project, damage, said, fix) -> None:
    if damage is for_windows:
        tool("x86_64-w64-mingw32-gcc")
    damage(project)
    done = project.check()
    assert done.returncode == 6, done.stdout + done.stderr
    assert said in done.stdout
    assert fix in done.stdout


def test_findings_are_data_for_scripts(project) -> None:
    pointer(project)
    document = json.loads(project.check("--json").stdout)
    assert not document["holds"]
    assert [finding["fix"] for finding in document["findings"]] == ["git lfs install && git lfs pull"]


def test_a_crate_of_another_version_is_one_that_cargo_ignores(project) -> None:
    (project.built / "Cargo.toml").write_text('[package]\nname = "candle-flash-attn"\nversion = "0.9.0"\n')
    done = project.check()
    assert done.returncode == 6
    assert "is candle-flash-attn 0.9.0, and the project uses 0.9.1: Cargo ignores it and compiles" in done.stdout
    done = project.check("--target", "windows-x86_64")
    assert "has no folder for windows-x86_64, which this is a build for" in done.stdout
    assert "--target windows-x86_64" in done.stdout


def test_a_project_without_a_set_up_is_shown_the_command(project) -> None:
    (project.root / ".cargo/config.toml").unlink()
    done = project.check()
    assert_ends(done, 2, "cargo build would compile its kernels", "flashdepot link candle --write")


@pytest.mark.nvcc
def test_one_command_in_the_projects_folder_sets_it_up(project, quick_library) -> None:
    shutil.rmtree(project.built)
    (project.root / ".cargo/config.toml").unlink()
    done = project.candle("--write", "--library", quick_library)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{project.root}/.cargo/config.toml\n"
    assert project.check().returncode == 0

    newer = replace(runtime_facts(), gpus=(Gpu("NVIDIA B200", Architecture.parse("10.0"), 180 << 30),))
    (project.root / "host.json").write_text(json.dumps(newer.to_json()))
    done = project.check("--host", "host.json")
    assert done.returncode == 6
    assert "The library has machine code for 80,90, and none of it runs on sm_100" in done.stdout

    for capability, status in (("120", 6), ("86", 0), ("90a", 0), ("native", 0)):
        done = project.check(CUDA_COMPUTE_CAP=capability)
        assert done.returncode == status, done.stdout
    done = project.check(CUDA_COMPUTE_CAP="10.0")
    assert "80,90, and none of it runs on 10.0 or newer, as CUDA_COMPUTE_CAP says" in done.stdout
