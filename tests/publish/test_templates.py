"""The templates for CI, and what is tested of a wheel before anybody else gets it."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from flashdepot.errors import IntegrityError
from flashdepot.files.documents import read_json, read_toml
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from flashdepot.model.target import Platform
from flashdepot.publish import REPORT_NAME, read_matrix, verify_wheel
from support.documents import commands, complaint
from support.machines import Party
from support.recipes import architectures
from support.tools import needs, run_program

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

TEMPLATES = Path(__file__).parents[2] / "examples" / "publishing"
WORKFLOW = TEMPLATES / ".github" / "workflows" / "publish.yml"
PIPELINE = TEMPLATES / ".gitlab-ci.yml"
INSTALL = TEMPLATES / "install-flashdepot"


def requirements() -> list[str]:
    """What flashdepot is made with and needs, with buckets."""
    document = read_toml(TEMPLATES.parents[1] / "pyproject.toml")
    project = document["project"]
    return [
        *project["dependencies"],
        *project["optional-dependencies"]["remote"],
        *document["build-system"]["requires"],
    ]


def workflow() -> Any:
    return yaml.safe_load(WORKFLOW.read_text())


def lines() -> list[str]:
    jobs = [*workflow()["jobs"].values(), *yaml.safe_load(PIPELINE.read_text()).values()]
    steps = [step["run"] for job in jobs if isinstance(job, dict) for step in job.get("steps", ()) if "run" in step]
    steps += [line for job in jobs if isinstance(job, dict) for line in job.get("script", ())]
    return [line for step in steps for line in step.splitlines()]


def filled_in(line: str) -> str:
    """A line with values in place of its variables."""
    line = line.removeprefix("$library = ").replace("$env:", "$")
    line = re.sub(r'"\$(FLASHDEPOT_)?PUBLIC_KEY"', f"ci:{'A' * 43}=", line)
    return re.sub(r'"\$(FLASHDEPOT_)?REMOTE"', "s3://bucket/flashdepot", line)


def test_every_command_of_flashdepot_is_one_that_it_takes() -> None:
    every = [words for line in lines() for words in commands(filled_in(line)) if words]
    found = [words[1:] for words in every if Path(words[0]).name == "flashdepot"]
    assert len(found) == 26
    assert not {" ".join(words): said for words in found if (said := complaint(words))}


def test_the_matrix_can_be_read() -> None:
    parts = read_matrix(TEMPLATES / "publish.toml").parts
    assert [dict(part.words)["target"] for part in parts].count("windows-x86_64") == 1
    assert len(parts) == 5


def test_one_job_has_a_secret_and_writes_and_only_on_main() -> None:
    jobs = workflow()["jobs"]
    for name, job in jobs.items():
        text = yaml.safe_dump(job)
        assert ("secrets." in text) == (name == "sign"), name
        assert ("--push" in text.replace("--no-push", "")) == (name == "sign"), name
        assert ("id-token" in job["permissions"]) == (name == "sign"), name
        assert "secrets." not in yaml.safe_dump(job.get("env", {})), name
    assert "publish" not in " ".join(step.get("run", "") for step in jobs["sign"]["steps"])
    assert [bool(re.search(r"secrets\.", yaml.safe_dump(step))) for step in jobs["sign"]["steps"]].count(True) == 1
    assert jobs["sign"]["environment"] == "publish"
    assert jobs["sign"]["needs"] == "build"
    assert "pull_request'" in jobs["build"]["if"]
    assert "refs/heads/main" in jobs["build"]["if"]


def test_in_the_pipeline_too_only_the_job_that_signs_has_keys() -> None:
    jobs = {name: job for name, job in yaml.safe_load(PIPELINE.read_text()).items() if "script" in job}
    for name, job in jobs.items():
        assert (
            ("environment" in job) == ("id_tokens" in job) == ("SIGNING_KEY" in yaml.safe_dump(job)) == (name == "sign")
        )
        assert ("--push" in yaml.safe_dump(job).replace("--no-push", "")) == (name == "sign"), name


def test_nothing_runs_that_is_not_pinned() -> None:
    uses = [step["uses"] for job in workflow()["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name) for name in uses)
    assert not [line for line in lines() if re.search(r"pip|npm|npx|uvx|docker|wget|\| *(ba)?sh", line)]
    assert [line for line in lines() if "curl" in line and "ACTIONS_ID_TOKEN_REQUEST_URL" not in line] == []
    rows = (TEMPLATES / "requirements.txt").read_text().replace("\\\n", "").splitlines()
    pins = [row for row in rows if not row.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][^ ]* ( *--hash=sha256:[0-9a-f]{64})+", row) for row in pins)
    pinned = {re.sub(r"[-_.]+", "-", row.partition("==")[0]).lower() for row in pins}
    assert {Requirement(text).name.lower() for text in requirements()} - {"tomli"} <= pinned
    installed = [line for line in INSTALL.read_text().splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-build-isolation --no-index" in line for line in installed)


@pytest.mark.skipif(sys.platform == "win32", reason="a script for bash")
@pytest.mark.parametrize("wrong", ["commit", "sha256"])
def test_another_flashdepot_than_the_one_that_is_pinned_is_not_installed(wrong, tmp_path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text("[project]\nname = 'evil'\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(source)]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = run_program([*git, "rev-parse", "HEAD"]).strip()
    pins = {
        "FLASHDEPOT_SOURCE": source.as_uri(),
        "FLASHDEPOT_COMMIT": commit if wrong == "sha256" else "1" * 40,
        "FLASHDEPOT_SHA256": "2" * 64,
    }
    done = subprocess.run(
        ["bash", str(INSTALL)], env={**os.environ, **pins}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert wrong == "commit" or "expected 2222" in done.stderr
    assert not (tmp_path / ".flashdepot").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="GNU tar")
def test_what_one_job_makes_is_what_the_next_one_signs(tmp_path, monkeypatch) -> None:
    """The lines of the template that hand a depot over, run on one."""
    jobs = workflow()["jobs"]
    pack, unpack = (
        next(step["run"] for step in jobs[job]["steps"] if "made.tar" in step.get("run", ""))
        for job in ("build", "sign")
    )
    monkeypatch.delenv("FLASHDEPOT_OFFLINE", raising=False)
    builder, signer = (Party(tmp_path / name, monkeypatch) for name in ("builder", "signer"))
    manifest = builder.store()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "x.whl").write_bytes(b"x")

    def run(script: str, party: Party) -> None:
        command = f"{sys.executable} -m flashdepot"
        for line in script.replace(".flashdepot/bin/flashdepot", command).splitlines():
            environment = {**os.environ, "FLASHDEPOT_HOME": str(party.folder / "depot")}
            subprocess.run(["bash", "-ec", line], env=environment, cwd=tmp_path, check=True, capture_output=True)

    run(".flashdepot/bin/flashdepot depot init", builder)
    run(pack, builder)
    (tmp_path / "dist" / "x.whl").unlink()
    run(unpack, signer)
    assert (tmp_path / "dist" / "x.whl").read_bytes() == b"x"
    signer.key()
    (tmp_path / "disk").mkdir()
    sent = signer.push(RemoteSettings("disk", (tmp_path / "disk").as_uri()), manifest)
    assert (sent.libraries, sent.units) == (1, 1)


@needs("zizmor")
def test_zizmor_finds_nothing() -> None:
    run_program(["zizmor", "--offline", "--no-progress", str(TEMPLATES)])


@pytest.fixture(scope="module")
def published(flashdepot: Any, quick_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the library's wheel was published, with the report."""
    folder = tmp_path_factory.mktemp("publish")
    (folder / "publish.toml").write_text('[matrix]\nprofile = "quick"\narch = "80,90"\n')
    report = flashdepot("publish", str(folder / "publish.toml"), "--no-push")
    assert report == read_json(folder / "dist" / REPORT_NAME)
    return folder / "dist"


@pytest.fixture
def manifest(quick_library: Path) -> Manifest:
    return Manifest.from_json(json.loads((quick_library / "manifest.json").read_text()))


def wheel_in(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.nvcc
def test_a_stored_library_is_used_again_and_its_wheel_is_verified(published, manifest) -> None:
    (part,) = read_json(published / REPORT_NAME)["parts"]
    assert (part["recipe_key"], part["wheel"]) == (manifest.recipe_key, wheel_in(published).name)
    assert (part["status"], part["compiled"], part["verified"]) == ("hit", 0, True)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"sass": architectures("80,90,120")}, "has machine code for 80,90, and its manifest says 80,90,120"),
        ({"sass": architectures("90")}, "its manifest says 90"),
        ({"platform": Platform("linux", "aarch64")}, "is for x86_64, not aarch64"),
        ({"platform": Platform("windows", "x86_64")}, "it has no flashattention.dll"),
    ],
)
@pytest.mark.nvcc
def test_a_wheel_that_does_not_hold_what_its_manifest_says_is_refused(claim, said, published, manifest) -> None:
    verify_wheel(wheel_in(published), manifest)
    with pytest.raises(IntegrityError, match=said):
        verify_wheel(wheel_in(published), replace(manifest, **claim))


@pytest.mark.nvcc
def test_a_wheel_with_one_changed_byte_is_refused(published, manifest, tmp_path) -> None:
    whole = wheel_in(published)
    changed = tmp_path / whole.name
    with zipfile.ZipFile(whole) as before, zipfile.ZipFile(changed, "w") as after:
        for info in before.infolist():
            data = before.read(info)
            after.writestr(info, data + b"#" if info.filename == "flash_attn/__init__.py" else data)
    with pytest.raises(IntegrityError, match=r"flash_attn/__init__\.py"):
        verify_wheel(changed, manifest)
