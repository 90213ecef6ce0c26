"""Words of Windows: paths and messages of its compilers, lines for cmd, and the driver that a GPU's tests need there."""

import ntpath
import re
import subprocess
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import pytest

from flashdepot.build import inputs
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.link.library import Shell
from flashdepot.model.limits import quoted_for_windows
from support.tools import Wine, needs


def test_paths_are_named_however_a_compiler_writes_their_letters(monkeypatch) -> None:
    monkeypatch.setattr(inputs, "os", SimpleNamespace(path=ntpath, sep=ntpath.sep))
    places = inputs.PlaceNames(
        (("upstream", PureWindowsPath(r"C:\fd\upstreams\2.8.3")), ("cuda", PureWindowsPath(r"D:\CUDA\v13.0"))),  # type: ignore[arg-type]
    )
    assert places.name(r"c:\FD\upstreams\2.8.3\csrc/flash_attn\src\..\flash.h") == "{upstream}/csrc/flash_attn/flash.h"
    assert places.name(r"d:/cuda/V13.0/include/cuda.h") == "{cuda}/include/cuda.h"
    assert places.name(r"C:\Program Files\Windows Kits\x.h") == "C:/Program Files/Windows Kits/x.h"


PRINTS_ITS_ARGUMENTS = """
#include <stdio.h>
int main(int n, char **words) { for (int i = 1; i < n; ++i) puts(words[i]); return 0; }
"""
COMPILER = "x86_64-w64-mingw32-gcc"


def in_cmd(wine: Wine, folder: Path, *lines: str, **variables: str) -> list[str]:
    (folder / "lines.cmd").write_bytes("\r\n".join(["@echo off", *lines, ""]).encode("ascii"))
    return wine.run("cmd", "/c", "lines.cmd", cwd=folder, **variables).stdout.split("\n")[:-1]


@needs(COMPILER)
def test_a_program_gets_the_arguments_that_were_joined(wine: Wine, tmp_path: Path) -> None:
    (tmp_path / "words.c").write_text(PRINTS_ITS_ARGUMENTS)
    subprocess.run([COMPILER, "words.c", "-o", "words.exe"], cwd=tmp_path, check=True)
    words = ["/MD", "/IC:\\a (b) & c\\include", "/LIBPATH:C:\\R&D\\lib", "x^y", "a|b>c", "two words", ""]
    got = in_cmd(
        wine,
        tmp_path,
        f"words.exe {' '.join(map(quoted_for_windows, words))}",
        "rem a > b & echo no",
        Shell.CMD.remark("x: y; z"),
    )
    assert [line.rstrip("\r") for line in got] == words


@pytest.mark.parametrize(("before", "after"), [({}, ""), ({"PKG_CONFIG_PATH": "C:\\more (x)"}, "C:\\more (x)")])
def test_a_folder_is_put_in_front_of_a_variable(wine: Wine, tmp_path: Path, before: dict[str, str], after: str) -> None:
    line = Shell.CMD.prepending("PKG_CONFIG_PATH", "C:\\my (libs) & all\\lib\\pkgconfig")
    got = in_cmd(wine, tmp_path, line, "set PKG_CONFIG_PATH", **before)
    assert [one.strip() for one in got] == [f"PKG_CONFIG_PATH=C:\\my (libs) & all\\lib\\pkgconfig;{after}"]


RELAY = Path(__file__).parents[1] / "gpu" / "under_wine" / "driver_functions.h"


def listed(path: Path) -> set[str]:
    """The driver's functions in a header's list."""
    return set(re.findall(r"^  X\((cu\w+)\)", path.read_text(), re.MULTILINE))


def test_nvcuda_dll_hands_on_every_function_that_the_library_asks_for() -> None:
    asked = listed(NATIVE / "driver" / "driver_api.h")
    assert "cuLaunchKernel" in asked
    assert asked - listed(RELAY) == set()
