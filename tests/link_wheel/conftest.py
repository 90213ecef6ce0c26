"""Published wheels in small: a torch, an extension built with it, a Python that has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheel_world import TorchEnvironment, make_environment, make_wheel

from support.tools import tool


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> TorchEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def wheel(environment: TorchEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"), environment, requires=("torch>=2.4,<2.5", "einops"))


@pytest.fixture
def cmake() -> None:
    tool("cmake")
