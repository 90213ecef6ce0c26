"""`flashdepot install` into real environments: proved there, or the environment as it was."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.errors import MissingToolError
from flashdepot.host.python_environment import probe_python
from flashdepot.install.change import EnvironmentChange, recover
from flashdepot.install.present import own_files
from flashdepot.resolve.own_wheel_name import wheel_version
from support.tools import assert_ends, unchanged
from support.venvs import Venv, add_official, add_torch

Install = Callable[..., subprocess.CompletedProcess[str]]


def test_the_wheel_is_installed_and_imports(install, depot, environment, installer) -> None:
    before = set(environment.contents())
    version = wheel_version(next(depot.artifacts.manifests()))
    done = install(depot, "--python", str(environment.python), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["status"], document["library"], document["source"]) == ("installed", "hit", "ours")
    assert (document["version"], document["replaced"], document["installer"]) == (version, None, installer)
    assert (document["torch"], document["python"]) == ("2.9.1", str(environment.python))
    assert environment.imports("flash_attn") == str(environment.site / "flash_attn" / "__init__.py")
    new = {
        name.removeprefix(f"lib/{environment.site.parent.name}/site-packages/")
        for name in set(environment.contents()) - before
    }
    assert {name.partition("/")[0] for name in new} == {
        "flash_attn",
        "flash_attn_2_cuda",
        f"flash_attn-{version}.dist-info",
    }


def test_another_flash_attn_is_replaced(install, depot, environment) -> None:
    add_official(environment)
    done = install(depot, "--python", str(environment.python), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["replaced"] == "2.7.0"
    assert not (environment.site / "flash_attn" / "only_there.py").exists()
    assert not list(environment.site.glob("flash_attn_2_cuda*.so"))
    assert "flash_attn_2_cuda/__init__" in environment.imports("flash_attn_2_cuda")


def test_the_same_wheel_again_changes_nothing_unless_a_file_of_it_was_changed(install, depot, environment) -> None:
    def again() -> tuple[str, str | None]:
        document = json.loads(install(depot, "--python", str(environment.python), "--json").stdout)
        return document["status"], document["replaced"]

    assert again() == ("installed", None)
    before = environment.contents()
    assert again() == ("unchanged", None)
    assert environment.contents() == before
    (environment.site / "flash_attn" / "__init__.py").write_text("")
    assert again() == ("installed", wheel_version(next(depot.artifacts.manifests())))


def test_a_module_that_stands_before_the_installed_one_is_found_out(install, depot, environment, tmp_path) -> None:
    (tmp_path / "mine" / "flash_attn_2_cuda").mkdir(parents=True)
    (tmp_path / "mine" / "flash_attn_2_cuda" / "__init__.py").write_text("")
    (environment.site / "mine.pth").write_text(f"import sys; sys.path.insert(0, {str(tmp_path / 'mine')!r})\n")
    before = environment.contents()
    done = install(depot, "--python", str(environment.python))
    assert_ends(done, 6, "Another copy comes first on sys.path")
    assert environment.contents() == before


def stage(change: EnvironmentChange, environment: Venv) -> list[Path]:
    """A new flash-attn, and the files of the old one."""
    site = change.staged / environment.site.relative_to(environment.root)
    for name in ("flash_attn/__init__.py", "flash_attn/new/new.py", "flash_attn_2_cuda/__init__.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("new = True\n")
    return own_files(probe_python(environment.python))


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
@pytest.mark.parametrize("number", [0, 3, 6, 8, 9, 13, 17, 22, 28, 999])
@pytest.mark.parametrize("image", [False, True], ids=["", "image"])
def test_a_killed_installation_is_undone_by_the_next(environment, number, image) -> None:
    """Killed before any of its changes, twice, and the second time while it is undone.

    What comes from a container's image is not renamed by its file system, overlayfs: it is copied.
    """
    add_official(environment)
    before = environment.contents()
    code = f"""
import errno, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from flashdepot.install.change import EnvironmentChange
from support.venvs import Venv
from install.test_install import stage
left = {number}
def before(event, arguments):
    global left
    if event in {{"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.copyfile"}}:
        if not left:
            os._exit(9)
        left -= 1
        if event == "os.rename" and {image} and len([1 for path in arguments[:2] if "-install/" in str(path)]) == 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
sys.addaudithook(before)
environment = Venv(Path({str(environment.root)!r}))
allowed = left
if sys.argv[1:] == ["swap"]:
    left = -1  # nothing is counted yet
with EnvironmentChange(environment.root, print) as change:
    files = stage(change, environment)
    left = allowed if left < 0 else left
    change.swap(files)
    os._exit(9)
"""
    for counted in ("swap", "undo"):
        assert subprocess.run([sys.executable, "-c", code, counted], check=False).returncode == 9
    said: list[str] = []
    assert recover(environment.root, said.append) == ("was interrupted: the environment was put back" in "".join(said))
    assert environment.contents() == before


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
@pytest.mark.parametrize("failing", ["new", "old"])
def test_an_installation_that_cannot_begin_leaves_nothing(environment, failing, monkeypatch) -> None:
    make = Path.mkdir

    def refuse(path: Path, *arguments: object, **keywords: object) -> None:
        if path.name == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        make(path, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    with unchanged(environment), pytest.raises(MissingToolError), EnvironmentChange(environment.root, pytest.fail):
        pass
    monkeypatch.undo()
    with EnvironmentChange(environment.root, pytest.fail):
        pass


def test_two_installations_into_one_environment_do_not_mix(install, depot, environment) -> None:
    with EnvironmentChange(environment.root, pytest.fail):
        done = install(depot, "--python", str(environment.python))
    assert_ends(done, 2, "Another flashdepot is installing into")


def test_a_flash_attn_that_could_not_be_put_back_is_left_untouched(install, depot, environment) -> None:
    add_official(environment, record=False)
    with unchanged(environment):
        done = install(depot, "--python", str(environment.python))
    assert_ends(done, 2, "nothing says which files are its own")


def test_the_nearest_venv_is_the_default(install, depot, bare_venv, tmp_path) -> None:
    (tmp_path / ".venv").symlink_to(bare_venv.root)
    done = install(depot)
    assert_ends(done, 3, f"{tmp_path / '.venv'} has no PyTorch")


def test_the_systems_python_is_refused_with_the_way_to_an_environment(install, depot) -> None:
    system = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}")
    done = install(depot, "--python", str(system))
    assert done.returncode == 3
    assert any(words in done.stderr for words in ("is the system's Python", "managed by the operating system"))
    assert "-m venv .venv" in done.stderr


@pytest.mark.parametrize(
    ("torch", "code", "said"),
    [(None, 3, "has no PyTorch"), ("2.1.2", 4, "It needs PyTorch 2.2 or newer, and this is 2.1.2")],
)
def test_an_environment_without_a_torch_that_serves_is_refused(install, depot, bare_venv, torch, code, said) -> None:
    if torch:
        add_torch(bare_venv, torch)
    with unchanged(bare_venv):
        done = install(depot, "--python", str(bare_venv.python), "--source", "ours")
    assert_ends(done, code, said)


def test_a_machine_without_an_installer_learns_how_to_get_one(install, depot, bare_venv, monkeypatch) -> None:
    add_torch(bare_venv)
    monkeypatch.setenv("PATH", "/nowhere")
    done = install(depot, "--python", str(bare_venv.python))
    assert_ends(done, 3, "-m ensurepip")
