from __future__ import annotations

import os
from pathlib import Path

import pytest

from flashdepot.build.inputs import read_depfile


def test_nvcc_and_gcc_rules_read_alike() -> None:
    nvcc = "/w/o.o : k.cu \\\n    /usr/include/stdc-predef.h \\\n    /c/bin/..//include/cuda_runtime.h\n"
    gcc = "/w/o.o: k.cu /usr/include/stdc-predef.h \\\n /c/include/cuda_runtime.h\n"
    expected = ("/src/k.cu", "/usr/include/stdc-predef.h", "/c/include/cuda_runtime.h")
    assert read_depfile(nvcc, Path("/src")) == expected
    assert read_depfile(gcc, Path("/src")) == expected


def test_a_file_named_twice_counts_once() -> None:
    assert read_depfile("a.o: a.cu ./a.cu sub/../a.cu\n", Path("/s")) == ("/s/a.cu",)


def test_blanks_hashes_and_dollars_in_names_are_read() -> None:
    assert read_depfile("a.o: my\\ file.cu c\\#.h $$x.h\n", Path("/s")) == ("/s/my file.cu", "/s/c#.h", "/s/$x.h")


def test_phony_rules_after_the_first_are_no_inputs() -> None:
    assert read_depfile("a.o: a.cu b.h\n\nb.h:\n", Path("/s")) == ("/s/a.cu", "/s/b.h")


def test_a_windows_target_with_a_drive_letter_is_not_the_end_of_the_target() -> None:
    assert read_depfile("C:/w/a.o : a.cu\r\n", Path("/s")) == ("/s/a.cu",)


def test_text_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        read_depfile("", Path("/s"))


@pytest.mark.skipif(os.sep != "/", reason="a backslash and digits are folders elsewhere")
def test_letters_that_nvcc_writes_by_their_bytes_are_read() -> None:
    rule = "a.o : a.cu \\\n    /home/J\\303\\274rgen\\ \\320\\266/my\\ k.h /\\377.h\n"
    assert read_depfile(rule, Path("/s"))[1:] == ("/home/Jürgen ж/my k.h", os.fsdecode(b"/\xff.h"))
