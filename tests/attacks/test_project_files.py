"""A ``flashdepot.toml`` that somebody else left on the way up."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.tools import assert_ends, at_a_terminal, flashdepot_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the compilers of these attacks are shell scripts")

SOMEBODY = 65_000
"""A user that no system has."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder deep in a project, and a compiler in it that leaves a mark when it is run."""
    inside = tmp_path / "project" / "src" / "deep"
    inside.mkdir(parents=True)
    plant(tmp_path / "project" / "evil")
    return inside


def plant(toolkit: Path) -> None:
    nvcc = toolkit / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho ran >> '{toolkit.parent}/ran'\n")
    nvcc.chmod(0o755)


def write(project: Path, text: str) -> Path:
    file = project.parents[1] / "flashdepot.toml"
    file.write_text(text)
    return file


def has_run(project: Path) -> bool:
    return (project.parents[1] / "ran").exists()


def variables(tmp_path: Path) -> dict[str, str]:
    folders = {"HOME": "home", "XDG_CONFIG_HOME": "config", "FLASHDEPOT_HOME": "depot"}
    return {name: str(tmp_path / folder) for name, folder in folders.items()} | {
        "FLASHDEPOT_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
    }


@pytest.fixture
def flashdepot(tmp_path: Path, project: Path) -> Run:
    return lambda *words, cwd=project: flashdepot_in(cwd, *words, **variables(tmp_path))


@pytest.mark.parametrize("spelled", ["./evil", "evil/", "src/../evil"])
def test_a_compiler_that_a_project_names_runs_only_after_consent(project, flashdepot, spelled) -> None:
    file = write(project, f'cuda = "{spelled}"\narch = [80]\n')
    for command in ("get", "build", "wheel"):
        done = flashdepot(command)
        assert_ends(done, 2, f"flashdepot trust {file}")
    assert not has_run(project)
    assert flashdepot("trust").returncode == 0
    flashdepot("get")
    assert has_run(project)


def test_consent_is_for_the_file_as_it_was(project, flashdepot) -> None:
    file = write(project, 'cuda = "./other"\narch = [80]\n')
    assert flashdepot("trust").returncode == 0
    write(project, 'cuda = "./evil"\narch = [80]\n')
    assert "you have not trusted it. It runs the compiler in" in flashdepot("get").stderr
    assert not has_run(project)
    assert json.loads(flashdepot("trust", "--list", "--json").stdout) == {
        "trusted": [{"path": str(file), "state": "changed"}]
    }


def test_consent_can_be_taken_back(project, flashdepot) -> None:
    file = write(project, 'cuda = "./evil"\narch = [80]\n')
    assert flashdepot("trust", str(file)).returncode == 0
    assert flashdepot("trust", "--remove").returncode == 0
    assert flashdepot("get").returncode == 2
    assert not has_run(project)
    assert flashdepot("trust", "--list").stdout == ""
    assert "was not trusted" in flashdepot("trust", "--remove").stderr


def test_consent_is_for_one_place(project, flashdepot, tmp_path) -> None:
    text = 'cuda = "./evil"\narch = [80]\n'
    write(project, text)
    assert flashdepot("trust").returncode == 0
    other = tmp_path / "other"
    plant(other / "evil")
    (other / "flashdepot.toml").write_text(text)
    assert flashdepot("get", cwd=other).returncode == 2
    assert not (other / "ran").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('upstream = "git+https://example.org/evil.git@main"', "It takes the source from git+https://example.org"),
        ('upstream = "./kernels"', "It takes the source from /"),
        ('upstream = "kernels"', "It takes the source from kernels"),
    ],
)
def test_source_from_elsewhere_needs_consent(project, flashdepot, text, said) -> None:
    write(project, f"{text}\narch = [80]\n")
    done = flashdepot("get")
    assert_ends(done, 2, said)


@pytest.mark.parametrize(
    "text", ["arch = [61]", 'arch = [61]\ncuda = "13.0"\nupstream = "2.8.3.post2"\nprofile = "quick"']
)
def test_versions_and_selections_need_none(project, flashdepot, text) -> None:
    write(project, text)
    assert "sm_61 cannot run" in flashdepot("get").stderr


def test_what_the_command_line_sets_is_not_asked_about(project, flashdepot) -> None:
    write(project, 'cuda = "./evil"\narch = [61]\n')
    assert "sm_61 cannot run" in flashdepot("get", "--cuda", "13.0").stderr


@pytest.mark.parametrize("word", ["auto", "13.0"])
def test_a_folder_here_that_is_called_as_a_choice_of_cuda_is_not_run(project, flashdepot, word) -> None:
    plant(project / word)
    flashdepot("get", "--arch", "80", "--cuda", word)
    assert not (project / "ran").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused_and_can_be_trusted(project, flashdepot) -> None:
    file = write(project, "arch = [61]\n")
    os.chown(file, SOMEBODY, SOMEBODY)
    done = flashdepot("get")
    assert_ends(done, 2, f"It belongs to user {SOMEBODY}")
    assert flashdepot("trust").returncode == 0
    assert "sm_61 cannot run" in flashdepot("get").stderr


def test_a_file_that_everybody_may_exchange_is_refused(project, flashdepot) -> None:
    file = write(project, "arch = [61]\n")
    file.parent.chmod(0o777)
    assert "verybody may write to its folder" in flashdepot("get").stderr


def test_a_link_is_judged_by_the_file_that_it_leads_to(project, flashdepot, tmp_path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    (open_folder / "x.toml").write_text("arch = [61]\n")
    open_folder.chmod(0o777)
    (project.parents[1] / "flashdepot.toml").symlink_to(open_folder / "x.toml")
    assert "verybody may write to its folder" in flashdepot("get").stderr


def test_a_list_of_consents_that_everybody_may_write_to_is_not_trusted(project, flashdepot, tmp_path) -> None:
    write(project, 'cuda = "./evil"\narch = [80]\n')
    assert flashdepot("trust").returncode == 0
    (tmp_path / "config" / "flashdepot" / "trusted.json").chmod(0o666)
    assert "is not trusted" in flashdepot("get").stderr
    assert not has_run(project)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a" + ".a" * 100_000 + " = 1", "#" * (1 << 21)])
def test_a_file_that_is_nested_or_large_is_refused_in_a_sentence(project, flashdepot, text) -> None:
    write(project, text)
    done = flashdepot("get")
    assert_ends(done, 2, "flashdepot.toml")


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("n", False), ("", False)])
def test_on_a_terminal_the_user_is_asked(project, tmp_path, answer, runs) -> None:
    write(project, 'cuda = "./evil"\narch = [80]\n')
    words = ("get", "--yes")  # to compiling, which is another question
    seen = at_a_terminal(*words, types={"[y/N]": f"{answer}\n"}, cwd=project, environment=variables(tmp_path))
    assert "It runs the compiler in" in seen.shown
    assert has_run(project) == runs
