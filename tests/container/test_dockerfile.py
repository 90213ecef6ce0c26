"""What the container's files name exists, and the commands in them are commands. No image is built here."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from flashdepot.cli.app import app
from support.upstreams import default_version

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "container" / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction with its continuation lines: its word, and the rest with options of its own left out."""

    word: str
    rest: str


def instructions() -> list[Instruction]:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            found.append(Instruction(word, re.sub(r"^(--mount=\S+\s+)+", "", rest.strip())))
    return found


def defaults() -> dict[str, str]:
    return dict(i.rest.split("=", 1) for i in instructions() if i.word == "ARG")


def commands() -> list[list[str]]:
    """Each command of every RUN, its variables replaced by the defaults of the build arguments."""
    found = []
    for instruction in instructions():
        if instruction.word == "RUN":
            text = re.sub(r"\$\{(\w+)\}", lambda match: defaults()[match[1]], instruction.rest)
            found += [shlex.split(part) for part in text.split("&&")]
    return found


def understand(words: list[str]) -> None:
    """Take the words of a command line apart as the program does, and do nothing."""
    context = click.Context(app)
    name, command, rest = app.resolve_command(context, words)
    assert command is not None
    command.make_context(name, rest, parent=context)


def test_every_instruction_is_one_of_dockers_and_stages_come_before_their_use() -> None:
    known = {"ARG", "COPY", "ENV", "FROM", "RUN"}
    assert {i.word for i in instructions()} == known
    stages: list[str] = []
    for instruction in instructions():
        if instruction.word == "FROM":
            image, _, name = instruction.rest.partition(" AS ")
            assert image in {"${BASE}", "scratch", *stages}
            stages.append(name)
        for used in re.findall(r"--from=(\S+)", instruction.rest):
            assert used in stages
    assert stages == ["tools", "build", "library"]


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    ignored = (ROOT / "container" / "Dockerfile.dockerignore").read_text().split()
    allowed = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [
        source for i in instructions() if i.word == "COPY" and "--from" not in i.rest for source in i.rest.split()[:-1]
    ]
    assert "src" in copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source


def test_what_is_copied_is_all_that_an_installation_reads() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'^readme = "(.+)"', project, re.MULTILINE)
    named += re.findall(r'^license-files = \["(.+)"\]', project, re.MULTILINE)
    copied = " ".join(i.rest for i in instructions() if i.word == "COPY").split()
    assert len(named) == 2
    assert set(named) | {"pyproject.toml", "src"} <= set(copied)


def test_its_flashdepot_commands_are_understood() -> None:
    called = [words[1:] for words in commands() if words[0].endswith("/flashdepot")]
    assert [words[0] for words in called] == ["get", "depot"]
    for words in called:
        understand(words)


def test_the_default_source_is_the_newest_that_is_known() -> None:
    assert defaults()["UPSTREAM"] == default_version()


def test_the_library_folder_of_the_build_is_what_the_last_stage_holds() -> None:
    out = next(words[words.index("--out") + 1] for words in commands() if "--out" in words)
    assert instructions()[-1] == Instruction("COPY", f"--from=build {out} /")


def test_the_depot_outlives_a_build() -> None:
    home = next(i.rest.partition("=")[2] for i in instructions() if i.word == "ENV" and "FLASHDEPOT_HOME" in i.rest)
    assert f"--mount=type=cache,target={home}" in DOCKERFILE.read_text()


def test_the_dev_container_is_made_of_a_stage_of_the_dockerfile() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text())
    build = settings["build"]
    assert (folder / build["dockerfile"]).resolve() == DOCKERFILE
    assert (folder / build["context"]).resolve() == ROOT
    assert any(i.word == "FROM" and i.rest.endswith(f" AS {build['target']}") for i in instructions())
    assert "--group dev" in settings["postCreateCommand"]
