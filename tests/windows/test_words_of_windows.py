"""Paths and messages of compilers for Windows, which logs and depfiles from there have."""

from __future__ import annotations

import ntpath
from pathlib import PureWindowsPath

import pytest

from flashdepot.build.engine import killed_for_memory
from flashdepot.build.inputs import PlaceNames


def test_paths_are_named_however_a_compiler_writes_their_letters() -> None:
    places = PlaceNames(
        (("upstream", PureWindowsPath(r"C:\fd\upstreams\2.8.3")), ("cuda", PureWindowsPath(r"D:\CUDA\v13.0"))),  # type: ignore[arg-type]
        ntpath,
    )
    assert places.name(r"c:\FD\upstreams\2.8.3\csrc/flash_attn\src\..\flash.h") == "{upstream}/csrc/flash_attn/flash.h"
    assert places.name(r"d:/cuda/V13.0/include/cuda.h") == "{cuda}/include/cuda.h"
    assert places.name(r"C:\Program Files\Windows Kits\x.h") == "C:/Program Files/Windows Kits/x.h"


@pytest.mark.parametrize(
    ("log", "memory"),
    [
        ("layout_composed.hpp(478): catastrophic error : out of memory", True),
        ("k.cu(3): error C2065: undeclared identifier", False),
    ],
)
def test_a_compiler_that_ran_out_of_memory_is_known(log: str, memory: bool) -> None:
    assert killed_for_memory(2, log) is memory
