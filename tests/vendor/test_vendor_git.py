"""Vendored libraries in a real repository, with real Git LFS, and clones made without it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.tools import run_program, tool
from vendor.vendor_tools import FOLDER, check, vendor, vendored

pytestmark = pytest.mark.nvcc

Git = Callable[..., str]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Git settings that only the test has."""
    tool("git")
    path = tmp_path / "gitconfig"
    path.write_text("[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return path


@pytest.fixture
def git(settings: Path) -> Git:
    def run(folder: Path, *arguments: str | Path, **variables: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *map(str, arguments)],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture
def lfs(git: Git, settings: Path, project: Path) -> None:
    """Git LFS set up for the test's user, and the project a repository."""
    tool("git-lfs")
    git(project, "init")
    git(project, "lfs", "install")


@pytest.fixture
def bare(lfs: None, git: Git, quick_library: Path, project: Path, tmp_path: Path) -> Path:
    """A bare repository to which the project was pushed, libraries as LFS objects."""
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "--bare", remote)
    vendored(quick_library, project)
    git(project, "add", ".")
    git(project, "commit", "-m", "libraries")
    git(project, "remote", "add", "origin", remote.as_uri())
    git(project, "push", "origin", "main")
    return remote


def test_libraries_are_stored_as_pointers_and_everything_else_as_itself(bare, git, project) -> None:
    stored = {line.split(" ", 2)[2] for line in git(project, "lfs", "ls-files").splitlines()}
    assert stored == {
        f"prebuilt/{FOLDER}/lib/shared/libflashattention.so.1",
        f"prebuilt/{FOLDER}/lib/static/libflashattention.a",
    }
    assert git(project, "show", f"HEAD:prebuilt/{FOLDER}/lib/shared/libflashattention.so.1").startswith("version https")


@pytest.mark.parametrize("without", ["skip smudge", "no filter"])
def test_a_clone_without_lfs_sees_the_pointers_and_the_command_which_then_fixes_it(
    bare, git, settings, tmp_path, without
) -> None:
    clone = tmp_path / "clone"
    plain = tmp_path / "plain-gitconfig"
    plain.write_text("[user]\nname = B\n")
    variables = {"GIT_LFS_SKIP_SMUDGE": "1"} if without == "skip smudge" else {"GIT_CONFIG_GLOBAL": str(plain)}
    git(tmp_path, "clone", bare.as_uri(), clone, **variables)
    status, report = check(clone)
    assert (status, report["status"]) == (6, "damaged")
    target = report["targets"][0]
    assert {f["path"] for f in target["faults"]} == {
        "lib/shared/libflashattention.so.1",
        "lib/static/libflashattention.a",
    }
    assert {f["fault"] for f in target["faults"]} == {"Git LFS pointer"}
    assert all("to the right file" in f["seen"] for f in target["faults"])
    assert f'git lfs pull --include "prebuilt/{FOLDER}/**"' in target["fix"]
    run_program(["sh", "-c", target["fix"]], cwd=clone)
    assert check(clone)[0] == 0


@pytest.mark.parametrize("line_endings", ["false", "true"])
def test_a_clone_with_lfs_is_whole_whatever_line_endings_it_gets(bare, git, tmp_path, line_endings) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-c", f"core.autocrlf={line_endings}", bare.as_uri(), clone)
    assert check(clone)[0] == 0
    assert line_endings == "true" or git(clone, "status", "--porcelain") == ""


def test_a_pointer_to_another_file_is_not_taken_for_the_right_one(target, project) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 240687188\n"
    (target / "lib/static/libflashattention.a").write_text(pointer)
    status, report = check(project)
    assert status == 6
    assert "a pointer to another file" in report["targets"][0]["faults"][0]["seen"]


def test_the_pull_command_names_the_path_from_the_repositorys_root(git, quick_library, project) -> None:
    git(project, "init")
    inside = project / "native/deps"
    inside.mkdir(parents=True)
    target = vendored(quick_library, inside)
    (target / "lib/static/libflashattention.a").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 1\n"
    )
    assert f'"native/deps/prebuilt/{FOLDER}/**"' in check(inside)[1]["targets"][0]["fix"]


def test_files_that_a_gitignore_would_leave_out_are_named(git, quick_library, project) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.a\n")
    done = vendor("--library", quick_library, cwd=project)
    assert "leaves 1 of the files out" in done.stderr
    assert "git add --force" in done.stderr


def test_a_repository_without_git_lfs_is_warned_of(git, quick_library, project) -> None:
    git(project, "init")
    assert "git lfs install" in vendor("--library", quick_library, cwd=project).stderr


def test_with_git_lfs_there_is_nothing_to_warn_of(lfs, quick_library, project) -> None:
    assert "warning" not in vendor("--library", quick_library, cwd=project).stderr
