"""What tests/gpu needs to run a Windows library on a GPU, as far as it can be seen without one."""

from __future__ import annotations

import re
from pathlib import Path

from flashdepot.kernels.c_layer import NATIVE

RELAY = Path(__file__).parents[1] / "gpu" / "under_wine" / "driver_functions.h"


def listed(path: Path) -> set[str]:
    """The driver's functions in a header's list."""
    return set(re.findall(r"^  X\((cu\w+)\)", path.read_text(), re.MULTILINE))


def test_nvcuda_dll_hands_on_every_function_that_the_library_asks_for() -> None:
    asked = listed(NATIVE / "driver" / "driver_api.h")
    assert "cuLaunchKernel" in asked
    assert asked - listed(RELAY) == set()
