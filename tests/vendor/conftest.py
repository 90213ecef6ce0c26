from __future__ import annotations

from pathlib import Path

import pytest

from vendor.vendor_tools import vendored


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def target(quick_library: Path, project: Path) -> Path:
    """The folder of the quick library in ``prebuilt`` of the project."""
    return vendored(quick_library, project)
