"""Environments that other programs keep: named, respected, and never surprised."""

import json
from pathlib import Path

import pytest

from flashdepot.errors import UsageError
from flashdepot.install.present import advice, find_keeper, require_free
from flashdepot.resolve.choice import OURS_MADE
from support.tools import assert_ends, unchanged

URL = "https://example.org/flash_attn-2.8.3-py3-none-any.whl"


def make(root: Path, *names: str) -> Path:
    """An environment's folder with marker files; a name with a slash at its end is a folder."""
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
    prefix = root / ".venv"
    prefix.mkdir(parents=True, exist_ok=True)
    return prefix


@pytest.mark.parametrize(
    ("marker", "keeper", "command"),
    [
        ("uv.lock", "uv", f"uv add {URL}"),
        ("poetry.lock", "poetry", f"poetry add {URL}"),
        ("pdm.lock", "pdm", f"pdm add {URL}"),
        ("Pipfile.lock", "pipenv", f"pipenv install {URL}"),
        (".venv/conda-meta/", "conda", f"- flash-attn @ {URL}"),
    ],
)
def test_a_keeper_is_known_by_its_files_and_named_by_its_own_command(tmp_path, marker, keeper, command) -> None:
    prefix = make(tmp_path, marker)
    found = find_keeper(prefix)
    assert found is not None
    assert found.name == keeper
    assert command in advice(found, URL)
    require_free(found, prefix, URL)


@pytest.mark.parametrize(
    ("marker", "keeper", "command"),
    [
        (".venv/pipx_metadata.json", "pipx", f"pipx inject .venv {URL}"),
        (".venv/uv-receipt.toml", "uv tool", f"uv tool install .venv --with {URL}"),
        (".venv/conda-meta/frozen", "conda", "conda create"),
    ],
)
def test_an_environment_of_one_application_is_refused_with_its_own_command(tmp_path, marker, keeper, command) -> None:
    prefix = make(tmp_path, marker)
    with pytest.raises(UsageError, match=f"is kept by {keeper}") as caught:
        require_free(find_keeper(prefix), prefix, URL)
    assert command in caught.value.hint


def test_a_uv_project_is_shown_the_line_for_its_pyproject(tmp_path) -> None:
    found = find_keeper(make(tmp_path, "uv.lock"))
    assert found
    assert f'[tool.uv.sources]: flash-attn = {{ url = "{URL}" }}' in advice(found, URL)
    assert "[tool.uv.sources]" not in advice(found, OURS_MADE), "our file has no address"


def test_pixi_is_not_taken_for_conda_nor_poetrys_own_folder_for_any(tmp_path) -> None:
    (tmp_path / ".pixi" / "envs" / "default" / "conda-meta").mkdir(parents=True)
    pixi = find_keeper(tmp_path / ".pixi" / "envs" / "default")
    (tmp_path / "pypoetry" / "virtualenvs" / "app-x1-py3.11").mkdir(parents=True)
    poetry = find_keeper(tmp_path / "pypoetry" / "virtualenvs" / "app-x1-py3.11")
    assert pixi
    assert poetry
    assert (pixi.name, poetry.name) == ("pixi", "poetry")


def test_pipenv_writes_down_which_project_an_environment_is_of(tmp_path) -> None:
    prefix = make(tmp_path / "elsewhere")
    assert find_keeper(prefix) is None
    (prefix / ".project").write_text(str(tmp_path / "project"))
    make(tmp_path / "project", "Pipfile.lock")
    found = find_keeper(prefix)
    assert found
    assert found.name == "pipenv"


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_an_installation_into_a_uv_project_works_and_says_what_uv_would_do(install, depot, environment) -> None:
    (environment.root.parent / "uv.lock").write_text("")
    (environment.root / ".lock").touch()  # as uv leaves one in every environment that it has changed
    done = install(depot, "--python", str(environment.python))
    assert_ends(done, 0, "'uv sync' takes it away", 'uv add "$(flashdepot wheel --out dist)"')
    assert json.loads(install(depot, "--python", str(environment.python), "--json").stdout)["keeper"] == "uv"


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_a_flash_attn_of_condas_is_left_to_conda(install, depot, environment) -> None:
    environment.add("flash_attn", "2.7.0", {"flash_attn/__init__.py": ""})
    (environment.site / "flash_attn-2.7.0.dist-info" / "INSTALLER").write_text("conda\n")
    with unchanged(environment):
        done = install(depot, "--python", str(environment.python))
    assert_ends(done, 2, "conda remove --prefix")
