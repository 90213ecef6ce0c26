"""The C ABI of today compared with that of 1.0, as abidiff of libabigail sees both.

abi-1.0.xml is what `abidw --no-corpus-path --no-comp-dir-path` said of the library that `probe` compiles, on 2026-11-24. It is
made again for a new major version only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.stub_library import NATIVE, run
from support.tools import needs

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import renew_abi

FROZEN = Path(__file__).with_name("abi-1.0.xml")
HEADER = (NATIVE / "include" / "flash_attention.h").read_text()
BROKEN = re.compile(
    r"\d+ data member (?:changes?|deletions?)\b|[1-9]\d* Removed|parameter \d+ of type .* changed|return type changed"
)

pytestmark = needs("abidiff", "gcc")


def probe(header: str, folder: Path) -> Path:
    """A library with the header's functions, and a variable for each number that a name of it stands for."""
    (folder / "flash_attention.h").write_text(header)
    declared = re.findall(r"FA_API ([^;]+?) FA_NOEXCEPT;", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL))
    numbers = {name: value for name, (value, _) in renew_abi.read_constants(header).items() if "VERSION" not in name}
    lines = ["#include <flash_attention.h>", *(f"{function} {{ return 0; }}" for function in declared)]
    lines += [f"char {name}_is_{value};" for name, value in numbers.items()]
    (folder / "probe.c").write_text("\n".join(lines) + "\n")
    made = folder / "probe.so"
    run(["gcc", "-g", "-shared", "-fPIC", f"-I{folder}", str(folder / "probe.c"), "-o", str(made)])
    return made


def what_broke(header: str, folder: Path) -> list[str]:
    """What a program of 1.0 would stumble over. A field at the end of a struct, or a function more, is none of it."""
    words = ["abidiff", str(FROZEN), str(probe(header, folder))]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode & 3 == 0, said.stderr  # 1 and 2: abidiff itself failed
    return BROKEN.findall(said.stdout)


def test_nothing_of_1_0_has_changed(tmp_path: Path) -> None:
    assert what_broke(HEADER, tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after", "breaks"),
    [
        ("} fa_fwd_args;", "  int64_t newer;\n} fa_fwd_args;", False),
        (
            "FA_API int32_t fa_version(void)",
            "FA_API int32_t fa_newer(void) FA_NOEXCEPT;\nFA_API int32_t fa_version(void)",
            False,
        ),
        ("  float scale; ", "  float inserted;\n  float scale; ", True),
        ("  float softcap; ", "  ", True),
        ("  int32_t num_splits;", "  float num_splits;", True),
        ("FA_FAMILY_FA4 = 4", "FA_FAMILY_FA4 = 5", True),
        ("FA_API int32_t fa_version(void) FA_NOEXCEPT;", "", True),
    ],
    ids=[
        "field-appended",
        "function-added",
        "field-inserted",
        "field-removed",
        "type-changed",
        "number-changed",
        "function-removed",
    ],
)
def test_what_breaks_programs_is_not_taken_for_growth(before: str, after: str, breaks: bool, tmp_path: Path) -> None:
    assert before in HEADER
    assert bool(what_broke(HEADER.replace(before, after, 1), tmp_path)) is breaks
