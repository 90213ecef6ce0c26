"""Renew src/flashdepot/wheel/runtime/layout.py from flash_attention.h.

Usage: python scripts/renew_abi_layout.py

Run it after a field or a constant was added to the header. The tests compare the file with the header and with the
compiler's offsetof, so a file that was forgotten is found.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/flashdepot"
HEADER = SOURCE / "native/include/flash_attention.h"
LAYOUT = SOURCE / "wheel/runtime/layout.py"

STRUCTS = {"fa_fwd_args": "FORWARD_FIELDS", "fa_bwd_args": "BACKWARD_FIELDS"}
USED = ("FP16", "BF16", "CAUSAL", "WINDOW_LEFT", "WINDOW_RIGHT", "ROTARY_INTERLEAVED", "DETERMINISTIC")
CODES = {"uint32_t": "I", "int32_t": "i", "int64_t": "q", "uint64_t": "Q", "float": "f"}
"""C types as module ``struct`` spells them; any pointer is ``P``."""

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
_FIELD = re.compile(r"(?:const )?(\w+) (\*?)(\w+)")
_CONSTANT = re.compile(r"FA_(\w+) = (\d+)(?: << (\d+))?")


def read_fields(header: str) -> dict[str, list[tuple[str, str]]]:
    """The fields of every struct with their codes; those of a struct within are named ``outer.inner``."""
    fields: dict[str, list[tuple[str, str]]] = {}
    for struct, body in _STRUCT.findall(_COMMENT.sub("", header)):
        fields[struct] = []
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            match = _FIELD.fullmatch(declaration)
            if match is None:
                raise SystemExit(f"{struct}: this script cannot read '{declaration}'")
            kind, pointer, name = match.groups()
            if pointer:
                fields[struct].append((name, "P"))
            elif kind in fields:
                fields[struct] += [(f"{name}.{inner}", code) for inner, code in fields[kind]]
            else:
                fields[struct].append((name, CODES[kind]))
    return fields


def read_constants(header: str) -> dict[str, int]:
    """The enumerators, without their prefix."""
    return {name: int(value) << int(shift or 0) for name, value, shift in _CONSTANT.findall(_COMMENT.sub("", header))}


def render(header: str) -> str:
    """The text of layout.py."""
    fields, constants = read_fields(header), read_constants(header)
    lines = [
        '"""The structs and constants of flash_attention.h. Written by scripts/renew_abi_layout.py."""',
        "",
        *(f"{name} = {constants[name]}" for name in USED),
    ]
    for struct, constant in STRUCTS.items():
        lines += ["", f"{constant} = ("]
        lines += [f'    ("{name}", "{code}"),' for name, code in fields[struct]]
        lines.append(")")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LAYOUT.write_text(render(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
