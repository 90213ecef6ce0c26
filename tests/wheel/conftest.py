"""flash_attn_2_cuda over a C library that records, and over a torch of addresses."""

import ctypes
import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_torch
import pytest

from flashdepot.wheel.builder import MODULE, RUNTIME
from support.fa_abi import BackwardArgs, ForwardArgs
from support.programs import compile_recorder


@pytest.fixture(scope="session")
def installed_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay the module out as the wheel does, and return its parent folder."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(RUNTIME, site / MODULE, ignore=shutil.ignore_patterns("__pycache__"))
    (site / MODULE / "lib").mkdir()
    shutil.copy(compile_recorder(site), site / MODULE / "lib" / "libflashattention.so.1")
    return site


class Runtime:
    """The imported module, the torch that it sees, and what reached the C library."""

    def __init__(self, module: Any, torch: Any, c: ctypes.CDLL) -> None:
        self.module, self.torch, self.c = module, torch, c
        c.recorder_set.argtypes = [ctypes.c_int32, ctypes.c_uint64]
        c.recorder_call.restype = ctypes.c_void_p
        self.answers()

    def answers(self, status: int = 0, workspace: int = 0) -> None:
        """From now on the C library wants this workspace and returns this status; forget earlier calls."""
        self.c.recorder_set(status, workspace)

    @property
    def calls(self) -> int:
        return int(self.c.recorder_count())

    def forward_args(self) -> ForwardArgs:
        """Return the one struct that fa_fwd got."""
        assert self.calls == 1
        return ForwardArgs.from_address(self.c.recorder_call(0))

    def backward_args(self) -> BackwardArgs:
        """Return the one struct that fa_bwd got."""
        assert self.calls == 1
        return BackwardArgs.from_address(self.c.recorder_call(0))


@pytest.fixture
def family() -> str:
    """What FLASH_ATTENTION_FAMILY is when the module is imported."""
    return ""


@pytest.fixture
def runtime(installed_runtime: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> Iterator[Runtime]:
    monkeypatch.setenv("FLASH_ATTENTION_FAMILY", family)
    faked = fake_torch.modules()
    for name, module in faked.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(installed_runtime))
    module = importlib.import_module(MODULE)
    library = importlib.import_module(f"{MODULE}.library")
    yield Runtime(module, faked["torch"], library._c)
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]
