"""Environments that another program keeps by files of its own, and what to tell their users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flashdepot.errors import UsageError

OURS_MADE = '"$(flashdepot wheel --out dist)"'
"""Stands for our wheel in a command: 'flashdepot wheel' prints its path."""

_PROJECT_FILES = {"uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}


class Keeper(msgspec.Struct, frozen=True):
    """A program that keeps an environment: its name, and the file or folder that shows it.

    ``refuses``: its environments are for one application, and installing beside it is wrong; otherwise pip and uv may
    install there, with ``consequence``. ``command`` has ``{wheel}`` where the address or path of a wheel goes.
    """

    name: str
    marker: Path
    consequence: str
    command: str
    refuses: bool = False


def find_keeper(prefix: Path) -> Keeper | None:
    """The program that keeps an environment, told by its marker files; ``None`` for a plain virtual environment.

    The files are those that the programs document: pipx ``pipx_metadata.json``, uv tools ``uv-receipt.toml``, conda
    ``conda-meta`` (``conda-meta/frozen`` by CEP 22), pixi ``.pixi/envs``, projects by their lock file.
    """
    if (marker := prefix / "pipx_metadata.json").is_file():
        command = f"pipx inject {prefix.name} {{wheel}}"
        return Keeper("pipx", marker, "'pipx upgrade' and 'pipx reinstall' make it anew.", command, refuses=True)
    if (marker := prefix / "uv-receipt.toml").is_file():
        command = f"uv tool install {prefix.name} --with {{wheel}}"
        return Keeper("uv tool", marker, "'uv tool upgrade' makes it anew.", command, refuses=True)
    if (marker := prefix / "conda-meta").is_dir():
        return _conda(prefix, marker)
    projects = (prefix.parent, *_named_project(prefix))
    for folder in projects:
        for file, name in _PROJECT_FILES.items():
            if (folder / file).is_file():
                return _project(name, folder / file)
    if prefix.parent.name == "virtualenvs" and prefix.parent.parent.name in {"pypoetry", ".poetry"}:
        return _project("poetry", prefix.parent)
    return None


def require_free(keeper: Keeper | None, prefix: Path, wheel: str) -> None:
    """Refuse an environment that is for one application.

    :raises UsageError: with the command of the program that keeps it.
    """
    if keeper is not None and keeper.refuses:
        raise UsageError(
            f"{prefix} is kept by {keeper.name} ({keeper.marker.name} says so): {keeper.consequence}",
            hint=f"Use its own command: {keeper.command.format(wheel=wheel)}",
        )


def advice(keeper: Keeper, wheel: str) -> str:
    """What a user of that program should know after an installation beside it.

    :param wheel: the address or path of what was installed.
    """
    said = f"{keeper.name} keeps this environment and does not know of flash-attn: {keeper.consequence}"
    text = f"{said} To make it known: {keeper.command.format(wheel=wheel)}"
    if keeper.name == "uv" and "://" in wheel:
        text += f'\n  or in pyproject.toml, under [tool.uv.sources]: flash-attn = {{ url = "{wheel}" }}'
    return text


def _conda(prefix: Path, marker: Path) -> Keeper:
    if (frozen := marker / "frozen").is_file():
        command = "conda create --name attention python, and install there"
        return Keeper("conda", frozen, "it is marked as not to be changed (CEP 22).", command, refuses=True)
    if ".pixi" in prefix.parts:
        command = "pixi add --pypi 'flash-attn @ {wheel}'"
        return Keeper("pixi", marker, "'pixi install' may take it away when it solves anew.", command)
    consequence = "'conda list' shows it as one of pypi's, and conda's solver does not count with it."
    command = "in environment.yml, under '- pip:', the line '- flash-attn @ {wheel}'"
    return Keeper("conda", marker, consequence, command)


def _project(name: str, marker: Path) -> Keeper:
    by_name: Mapping[str, tuple[str, str]] = {
        "uv": ("'uv sync' takes it away.", "uv add {wheel}"),
        "poetry": ("'poetry sync' takes it away.", "poetry add {wheel}"),
        "pdm": ("'pdm sync --clean' takes it away.", "pdm add {wheel}"),
        "pipenv": ("'pipenv clean' takes it away.", "pipenv install {wheel}"),
    }
    consequence, command = by_name[name]
    return Keeper(name, marker, consequence, command)


def _named_project(prefix: Path) -> tuple[Path, ...]:
    """pipenv keeps environments away from projects, and writes the project's folder into one file there."""
    try:
        return (Path((prefix / ".project").read_text().strip()),)
    except (OSError, ValueError):
        return ()
