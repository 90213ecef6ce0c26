"""What the README shows is true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from flashdepot.build.native import NATIVE
from flashdepot.resolve.project import read_project

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match[1]


def test_the_c_example_compiles_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "example.c").write_text(block("c"))
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{NATIVE}/include"]
    subprocess.run([*command, "-c", "example.c", "-o", "example.o"], cwd=tmp_path, check=True)


def test_the_project_file_is_understood(tmp_path: Path) -> None:
    (tmp_path / "flashdepot.toml").write_text(block("toml"))
    assert read_project(tmp_path / "flashdepot.toml")["head-dims"] == "64,128"


def test_every_file_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_its_two_commands_are_in_it() -> None:
    first = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/flashdepot get --profile quick\n"
    assert first in README
    assert "./scripts/test\n" in README
