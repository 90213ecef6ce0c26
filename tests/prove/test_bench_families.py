"""The families of kernels that `bench` times, without torch or a GPU: its script over stand-ins for what it imports."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashdepot import prove

SCRIPT = Path(prove.__file__).with_name("speed.py")


def refuses(*numbers: int) -> tuple[SimpleNamespace, Callable[[], int]]:
    """our library, and a call of it that answers with the family in force, or refuses some of them."""
    library = SimpleNamespace(_family=0)

    def run() -> int:
        if library._family in numbers:
            raise RuntimeError("family is not in this library")
        return library._family

    return library, run


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    attributes: dict[str, dict[str, object]] = {
        "torch": {},
        "torch.nn": {},
        "torch.nn.attention": {
            "SDPBackend": SimpleNamespace(FLASH_ATTENTION=1, EFFICIENT_ATTENTION=2),
            "sdpa_kernel": None,
        },
        "flash_attn": {"flash_attn_func": None},
    }
    for name, values in attributes.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(SCRIPT))


def test_each_family_is_timed_by_itself_where_a_library_has_two(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, run = refuses()
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", SimpleNamespace(library=library))
    found = script["by_family"](run)
    assert {name: by() for name, by in found.items()} == {"fa4": 4, "fa2": 2}
    assert library._family == 0  # what is dispatched is timed as it was


@pytest.mark.parametrize("refused", [(4,), (2, 4)])
def test_a_library_of_one_family_is_timed_once(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, refused: tuple[int, ...]
) -> None:
    library, run = refuses(*refused)
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", SimpleNamespace(library=library))
    assert script["by_family"](run) == {}


def test_another_wheel_than_ours_is_timed_once(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", ModuleType("flash_attn_2_cuda"))
    assert script["by_family"](lambda: 1) == {}
