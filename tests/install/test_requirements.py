"""What a wheel requires next to itself comes with it, from the user's index, and goes again with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support import forge
from support.venvs import TAG, Run, Venv

MODULE = {"flash_attn_2_cuda.py": b""}


@pytest.fixture
def lacking(environment: Venv) -> Venv:
    """An environment with torch and without einops."""
    for path in environment.site.glob("einops*"):
        shutil.rmtree(path)
    return environment


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings, which name a folder that has einops and nothing else."""
    (tmp_path / "packages").mkdir()
    forge.wheel(tmp_path / "packages", {"einops/__init__.py": b""}, name="einops", version="0.8.1", tag="py3-none-any")
    (tmp_path / "uv.toml").write_text(
        f"no-index = true\nfind-links = [{str(tmp_path / 'packages')!r}]\nno-cache = true\n"
    )
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))


def wheel(folder: Path, code: bytes, *requires: str) -> str:
    return str(forge.wheel(folder, {"flash_attn/__init__.py": code, **MODULE}, tag=TAG, requires=requires))


def test_einops_is_installed_from_the_users_index(command: Run, lacking: Venv, index: None, tmp_path: Path) -> None:
    name = wheel(tmp_path, b"import einops\n", "torch", "einops", "triton; sys_platform == 'nowhere'")
    planned = command("--wheel", name, "--dry-run")
    assert "with einops, from your index" in planned.err
    done = command("--wheel", name, "--json")
    assert done.code == 0, done.err
    assert "flash-attn requires einops: it comes from your index." in done.err
    assert json.loads(done.out)["added"] == ["einops"]
    assert lacking.imports("einops")
    assert command("--wheel", name, "--json").code == 0, "it is there now"


def test_what_came_with_a_wheel_that_does_not_work_goes_with_it(
    command: Run, lacking: Venv, index: None, tmp_path: Path
) -> None:
    before = lacking.contents()
    done = command("--wheel", wheel(tmp_path, b"import einops; 1 / 0\n", "torch", "einops"))
    assert done.code == 6, done.err
    assert "ZeroDivisionError" in done.err
    assert lacking.contents() == before


ELSEWHERE = {
    "the index has none": (("torch", "nowhere"), 7, "did not install nowhere"),
    "another version is there": (("torch>=99",), 4, "requires torch>=99, and"),
}


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_requirement_that_cannot_be_met_is_named_and_nothing_changes(
    command: Run, lacking: Venv, index: None, tmp_path: Path, case: str
) -> None:
    before = lacking.contents()
    requires, code, said = ELSEWHERE[case]
    done = command("--wheel", wheel(tmp_path, b"", *requires))
    assert done.code == code, done.err
    assert said in done.err
    assert lacking.contents() == before


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_offline_the_command_is_given(
    command: Run, lacking: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    done = command("--wheel", wheel(tmp_path, b"", "torch", "einops"))
    assert done.code == 7
    assert "uv pip install einops" in done.err
