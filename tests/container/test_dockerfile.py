"""What the container's files name exists, and the commands in them are commands. No image is built here."""

import fnmatch
import json
import re
import shlex
from pathlib import Path

from support.documents import complaint
from support.upstreams import default_version

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "container" / "Dockerfile"
LINES = re.sub(r"^#.*\n|--mount=\S+\s+", "", DOCKERFILE.read_text().replace("\\\n", " "), flags=re.MULTILINE).split(
    "\n"
)
INSTRUCTIONS = [(word, rest.split()) for word, _, rest in (line.partition(" ") for line in LINES) if word]
DEFAULTS = dict(words[0].split("=", 1) for word, words in INSTRUCTIONS if word == "ARG")


def test_what_is_copied_exists_reaches_the_builder_and_is_all_that_an_installation_reads() -> None:
    ignored = (ROOT / "container" / "Dockerfile.dockerignore").read_text().split()
    allowed = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = {
        source
        for word, words in INSTRUCTIONS
        if word == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    }
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'^(?:readme = |license-files = \[)"(.+?)"', project, re.MULTILINE)
    assert len(named) == 2
    assert {*named, "pyproject.toml", "src"} <= copied


def test_its_flashdepot_commands_are_understood_and_make_what_the_last_stage_holds() -> None:
    text = "&&".join(" ".join(words) for word, words in INSTRUCTIONS if word == "RUN")
    commands = [shlex.split(re.sub(r"\$\{(\w+)\}", lambda m: DEFAULTS[m[1]], part)) for part in text.split("&&")]
    get, depot = (words[1:] for words in commands if words[0].endswith("/flashdepot"))
    assert (get[0], depot[0], DEFAULTS["UPSTREAM"]) == ("get", "depot", default_version())
    assert complaint(get) is complaint(depot) is None
    assert INSTRUCTIONS[-1] == ("COPY", ["--from=build", get[get.index("--out") + 1], "/"])
    (home,) = (w.partition("=")[2] for word, words in INSTRUCTIONS if word == "ENV" for w in words if "DEPOT_HOME" in w)
    assert f"--mount=type=cache,target={home}" in DOCKERFILE.read_text(), "the depot outlives a build"


def test_the_dev_container_is_made_of_a_stage_of_the_dockerfile() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text())
    build = settings["build"]
    assert (folder / build["dockerfile"]).resolve() == DOCKERFILE
    assert (folder / build["context"]).resolve() == ROOT
    assert ["AS", build["target"]] in [words[1:] for word, words in INSTRUCTIONS if word == "FROM"]
    assert "--group dev" in settings["postCreateCommand"]
