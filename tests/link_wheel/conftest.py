"""Published wheels in small: a torch, an extension built with it, a Python that has it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "binary"))  # forge.py is shared
from wheel_world import TorchEnvironment, make_environment, make_wheel


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> TorchEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def wheel(environment: TorchEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"), environment, requires=("torch>=2.4,<2.5", "einops"))


@pytest.fixture
def cmake() -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
