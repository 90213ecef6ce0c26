from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.cli.library_commands import describe
from flashdepot.model.target import Architecture
from flashdepot.resolve.library import LibraryResult
from support.depots import make_manifest


@pytest.mark.parametrize(
    ("status", "sass", "told"), [("built", (8, 0), False), ("built", (9, 0), True), ("hit", (9, 0), False)]
)
def test_a_new_library_for_hopper_names_the_other_family(status: str, sass: tuple[int, int], told: bool) -> None:
    manifest = make_manifest(sass=(Architecture(*sass),))
    page = " ".join(describe(LibraryResult(status, manifest, Path("lib"), 2, 0, 1.0)))
    assert ("--families all" in page) is told
