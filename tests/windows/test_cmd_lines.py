"""What is printed for cmd, read by wine's cmd."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashdepot.link.lines import Shell
from support.tools import Wine, needs

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
        wine, tmp_path, f"words.exe {Shell.CMD.join(words)}", "rem a > b & echo no", Shell.CMD.remark("x: y; z")
    )
    assert [line.rstrip("\r") for line in got] == words


@pytest.mark.parametrize(("before", "after"), [({}, ""), ({"PKG_CONFIG_PATH": "C:\\more (x)"}, "C:\\more (x)")])
def test_a_folder_is_put_in_front_of_a_variable(wine: Wine, tmp_path: Path, before: dict[str, str], after: str) -> None:
    line = Shell.CMD.prepending("PKG_CONFIG_PATH", "C:\\my (libs) & all\\lib\\pkgconfig")
    got = in_cmd(wine, tmp_path, line, "set PKG_CONFIG_PATH", **before)
    assert [one.strip() for one in got] == [f"PKG_CONFIG_PATH=C:\\my (libs) & all\\lib\\pkgconfig;{after}"]
