"""The structs that Python packs are those that the compiler lays out."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flashdepot.wheel.builder import RUNTIME
from support.programs import compile_c

SCRIPT = Path(__file__).parents[2] / "scripts" / "renew_abi.py"


def load(path: Path) -> ModuleType:
    """Run a module that is in no package that can be imported here: its neighbours need torch."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module


layout = load(RUNTIME / "layout.py")
STRUCTS = {"fa_fwd_args": layout.FORWARD_FIELDS, "fa_bwd_args": layout.BACKWARD_FIELDS}
CONSTANTS = {
    "FP16": "DTYPE",
    "BF16": "DTYPE",
    **dict.fromkeys(("CAUSAL", "WINDOW_LEFT", "WINDOW_RIGHT", "ROTARY_INTERLEAVED", "DETERMINISTIC"), "FLAG"),
}
"""The kind that the header's name of each begins with."""


def test_layout_is_what_the_script_writes_from_the_header_of_today() -> None:
    script = load(SCRIPT)
    assert script.LAYOUT.read_text() == script.layout(script.HEADER.read_text()), f"run python {SCRIPT}"


@pytest.mark.slow
def test_offsets_sizes_and_constants_are_the_compilers(tmp_path: Path) -> None:
    prints = [
        f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
        for name, fields in STRUCTS.items()
        for field, _ in fields
    ]
    prints += [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTS]
    prints += [f'printf("{name} %d\\n", FA_{prefix}_{name});' for name, prefix in CONSTANTS.items()]
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <flash_attention.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{ {' '.join(prints)} return 0; }}\n"
    )
    said = subprocess.run(
        [str(compile_c(source, tmp_path / "offsets"))], capture_output=True, text=True, check=True
    ).stdout
    compiled = {name: int(value) for name, value in (line.split() for line in said.splitlines())}

    ours = {name: getattr(layout, name) for name in CONSTANTS}
    for name, fields in STRUCTS.items():
        codes = [code for _, code in fields]
        for index, (field, code) in enumerate(fields):
            ours[f"{name}.{field}"] = struct.calcsize("@" + "".join(codes[: index + 1])) - struct.calcsize("@" + code)
        ours[name] = struct.calcsize("@" + "".join(codes) + "0Q")
    assert ours == compiled
