import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def moved_library(quick_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick library in another folder than the depot's, with a blank in its path."""
    place = tmp_path_factory.mktemp("another place") / "lib"
    shutil.copytree(quick_library, place, symlinks=True)
    return place


@pytest.fixture
def damageable_library(moved_library: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(moved_library, tmp_path / "library", symlinks=True))


@pytest.fixture
def sh(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command line in the test's folder, with both streams together."""

    def run(
        *command: str | Path, cwd: Path = tmp_path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run
