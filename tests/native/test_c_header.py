"""flash_attention.h: it compiles wherever C or C++ does, and its layout is the one promised."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from fa_abi import STRUCTS
from stub_library import NATIVE, run

HEADER = NATIVE / "include" / "flash_attention.h"


@pytest.mark.parametrize(
    ("compiler", "standard"),
    [("gcc", "c99"), ("gcc", "c11"), ("gcc", "c17"), ("g++", "c++11"), ("g++", "c++17"), ("g++", "c++20")],
)
def test_header_compiles_without_a_warning(compiler: str, standard: str, tmp_path: Path) -> None:
    source = tmp_path / ("user.c" if compiler == "gcc" else "user.cpp")
    source.write_text("#include <flash_attention.h>\nint main(void) { return fa_fwd(0); }\n")
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wundef", "-Werror"]
    run([compiler, f"-std={standard}", *warnings, f"-I{HEADER.parent}", "-fsyntax-only", str(source)])


def test_header_includes_nothing_but_stdint() -> None:
    includes = [line for line in HEADER.read_text().splitlines() if line.startswith("#include")]
    assert includes == ["#include <stdint.h>"]


def test_layout_in_c_is_the_one_of_the_ctypes_binding(tmp_path: Path) -> None:
    lines = []
    expected = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{name}.{field} {getattr(struct, field).offset}")
    body = "\n".join(lines)
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <flash_attention.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{\n{body}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "layout"
    run(["gcc", "-std=c99", f"-I{HEADER.parent}", str(source), "-o", str(program)])
    assert run([str(program)]).split("\n")[:-1] == expected


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_have_no_padding(name: str) -> None:
    struct = STRUCTS[name]
    assert sum(getattr(struct, field).size for field, *_ in struct._fields_) == ctypes.sizeof(struct)


def test_a_struct_that_moved_a_field_does_not_compile(tmp_path: Path) -> None:
    header = HEADER.read_text()
    moved = header.replace("  float scale; ", "  float inserted, scale; ")
    assert moved != header
    (tmp_path / "flash_attention.h").write_text(moved)
    command = ["g++", "-std=c++17", f"-I{tmp_path}", "-fsyntax-only", str(NATIVE / "src" / "abi.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "fa_fwd_args.scale moved" in done.stderr
