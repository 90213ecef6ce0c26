"""What is tested of a wheel before anybody else gets it, with a library that a real compiler made."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flashdepot.errors import IntegrityError
from flashdepot.files.atomic import read_json
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import Platform
from flashdepot.publish import REPORT_NAME, verify_wheel
from support.recipes import architectures

pytestmark = pytest.mark.nvcc


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


def test_a_stored_library_is_used_again_and_its_wheel_is_verified(published: Path, manifest: Manifest) -> None:
    (part,) = read_json(published / REPORT_NAME)["parts"]
    assert (part["recipe_key"], part["wheel"]) == (manifest.recipe_key, wheel_in(published).name)
    assert (part["status"], part["compiled"], part["proven"]) == ("hit", 0, True)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"sass": architectures("80,90,120")}, "has machine code for 80,90, and its manifest says 80,90,120"),
        ({"sass": architectures("90")}, "its manifest says 90"),
        ({"platform": Platform("linux", "aarch64")}, "is for x86_64, not aarch64"),
        ({"platform": Platform("windows", "x86_64")}, "it has no flashattention.dll"),
    ],
)
def test_a_wheel_that_does_not_hold_what_its_manifest_says_is_refused(
    claim: dict[str, Any], said: str, published: Path, manifest: Manifest
) -> None:
    verify_wheel(wheel_in(published), manifest)
    with pytest.raises(IntegrityError, match=said):
        verify_wheel(wheel_in(published), replace(manifest, **claim))


def test_a_wheel_with_one_changed_byte_is_refused(published: Path, manifest: Manifest, tmp_path: Path) -> None:
    whole = wheel_in(published)
    changed = tmp_path / whole.name
    with zipfile.ZipFile(whole) as before, zipfile.ZipFile(changed, "w") as after:
        for info in before.infolist():
            data = before.read(info)
            after.writestr(info, data + b"#" if info.filename == "flash_attn/__init__.py" else data)
    with pytest.raises(IntegrityError, match=r"flash_attn/__init__\.py"):
        verify_wheel(changed, manifest)
