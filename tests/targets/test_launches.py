"""Libraries of one selection launch the same on every target: the same kernels, shapes and parameter bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flashdepot.host.probe import this_platform
from flashdepot.toolchain.targets import TARGETS
from flashdepot.toolchain.zig import Zig, compiling_version, zig_folder
from support.launch_records import record_launches

LIBRARIES = os.environ.get("FLASHDEPOT_TEST_LAUNCHES")
"""A folder with libraries as `flashdepot get --target T --out` writes them, each by the name of its target."""


@pytest.mark.skipif(LIBRARIES is None, reason="compares libraries: FLASHDEPOT_TEST_LAUNCHES names their folder")
def test_three_thousand_random_calls_launch_the_same_on_every_target(real_depot: Path, tmp_path: Path) -> None:
    version = compiling_version()
    zig = Zig(zig_folder(this_platform(), real_depot / "toolchains", version), version)
    made = {}
    for name in map(str, TARGETS):
        library = Path(str(LIBRARIES), name)
        if library.is_dir():
            made[name] = record_launches(name, library, tmp_path / name, 3000, zig=zig, prefix=tmp_path / "wine")
    ran = [launches for launches in made.values() if launches is not None]
    assert len(ran) > 1, f"nothing to compare: {', '.join(made)}"
    first, *others = ran
    assert first.ran > 0
    for other in others:
        assert other.answers == first.answers
        assert other.orders == first.orders
