import shutil
from pathlib import Path

import pytest

from vendor.vendor_tools import vendored


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def vendored_once(quick_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the quick library in ``prebuilt`` of a project that no test changes."""
    return vendored(quick_library, tmp_path_factory.mktemp("vendored"))


@pytest.fixture
def target(vendored_once: Path, project: Path) -> Path:
    """The folder of the quick library in ``prebuilt`` of the project."""
    shutil.copytree(vendored_once.parent, project / "prebuilt", symlinks=True)
    return project / "prebuilt" / vendored_once.name
