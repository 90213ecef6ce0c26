"""The templates for CI: their file can be read, their commands exist, and nobody reads secrets who must not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashdepot.publish import read_matrix
from support.command_lines import commands, complaint

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

TEMPLATES = Path(__file__).parents[2] / "examples" / "publishing"
WORKFLOW = TEMPLATES / ".github" / "workflows" / "publish.yml"
PIPELINE = TEMPLATES / ".gitlab-ci.yml"


def workflow() -> Any:
    return yaml.safe_load(WORKFLOW.read_text())


def lines() -> list[str]:
    jobs = [*workflow()["jobs"].values(), *yaml.safe_load(PIPELINE.read_text()).values()]
    steps = [step["run"] for job in jobs if isinstance(job, dict) for step in job.get("steps", ())]
    steps += [line for job in jobs if isinstance(job, dict) for line in job.get("script", ())]
    return [line for step in steps for line in step.splitlines()]


def filled_in(line: str) -> str:
    """A line with values in the place of its variables."""
    line = line.removeprefix("$library = ").replace("$env:", "$")
    line = re.sub(r'"\$(FLASHDEPOT_)?PUBLIC_KEY"', f"ci:{'A' * 43}=", line)
    return re.sub(r'"\$(FLASHDEPOT_)?REMOTE"', "s3://bucket/flashdepot", line)


def test_every_command_of_flashdepot_is_one_that_it_takes() -> None:
    every = [words for line in lines() for words in commands(filled_in(line)) if words]
    found = [words[1:] for words in every if Path(words[0]).name == "flashdepot"]
    assert len(found) == 14
    assert not {" ".join(words): said for words in found if (said := complaint(words))}


def test_the_matrix_can_be_read() -> None:
    parts = read_matrix(TEMPLATES / "publish.toml").parts
    assert [dict(part.words)["target"] for part in parts].count("windows-x86_64") == 1
    assert len(parts) == 5


def test_a_pull_request_has_no_secret_and_writes_nowhere() -> None:
    jobs = workflow()["jobs"]
    for name, job in jobs.items():
        has_secrets = "secrets." in yaml.safe_dump(job)
        assert has_secrets == (name == "publish"), name
        assert has_secrets == ("--push" in yaml.safe_dump(job)), name
    assert jobs["publish"]["environment"] == "publish"
    assert "pull_request'" in jobs["publish"]["if"]
    assert "refs/heads/main" in jobs["publish"]["if"]


@pytest.mark.skipif(shutil.which("zizmor") is None, reason="there is no zizmor")
def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        ["zizmor", "--offline", "--no-progress", str(WORKFLOW)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
