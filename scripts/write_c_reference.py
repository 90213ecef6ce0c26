"""Write docs/c-api.md from the declarations and comments of flash_attention.h.

Usage: PYTHONPATH=src python scripts/write_c_reference.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from flashdepot.link.c_header import Constant, CType, Field, Function, Struct, parse_header

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
PAGE = ROOT / "docs/c-api.md"

_HEAD = """\
# The C API

What `#include <flash_attention.h>` declares. This page is written by `scripts/write_c_reference.py` from the header
itself, which every library has in `include/`; [Use it in C, C++ and CMake](cpp.md) shows how to link it.

"""

_FIRST_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_CODE = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_NAME = re.compile(r"\b(fa_\w+|FA_\w+)\b(\(\))?")
_TITLE = re.compile(r"^(\w[\w ]+)\n(?=- )", re.MULTILINE)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def page(header: str) -> str:
    """The text of the page for the text of a header."""
    declared = parse_header(header)
    parts = [
        _HEAD + introduction(header),
        "## Functions\n",
        *(function_entry(function) for function in declared.functions),
        "## Structs, field by field\n",
        "Offsets are in bytes, on 64-bit Linux and Windows.\n",
        *(struct_entry(struct) for struct in declared.structs),
        "## Constants\n",
        *constant_tables(declared.constants),
    ]
    return "\n".join(parts)


def introduction(header: str) -> str:
    """The header's first comment: its code in a block, and the lines above its lists as headings."""
    match = _FIRST_COMMENT.search(header)
    text = match[1] if match else ""
    lines = (re.sub(r"^ \* ?", "", line).rstrip() for line in text.splitlines())
    plain = "\n".join(lines).strip() + "\n"
    written, at = "", 0
    for code in _CODE.finditer(plain):
        written += (
            prose(plain[at : code.start()]) + "```c\n" + re.sub("^ {4}", "", code[0], flags=re.MULTILINE) + "```\n"
        )
        at = code.end()
    return _TITLE.sub(r"## \1\n\n", written + prose(plain[at:]))


def function_entry(function: Function) -> str:
    """A function's prototype, and what its comment says."""
    parameters = ", ".join(c_name(parameter.type, parameter.name) for parameter in function.parameters)
    prototype = f"{c_name(function.result, function.name)}({parameters or 'void'});"
    structs = [p.type.name for p in function.parameters if p.type.pointer and p.type.name.startswith("fa_")]
    arguments = "".join(f"Its arguments: [`{name}`](#{name})." for name in structs)
    return (
        "\n\n".join(filter(None, [f"### {function.name}", f"```c\n{prototype}\n```", prose(function.doc), arguments]))
        + "\n"
    )


def struct_entry(struct: Struct) -> str:
    """A struct's comment, and a table for each run of its fields that has a comment of its own."""
    heading = f"### {struct.name}\n\n{struct.size} bytes. {prose(struct.doc)}".rstrip()
    return "\n\n".join([heading, *_field_tables(struct.fields)]) + "\n"


def _field_tables(fields: Iterable[Field]) -> Iterator[str]:
    section, rows = "", list[str]()
    for field in fields:
        if field.section and rows:
            yield _table(section, "| field | type | offset | |\n| --- | --- | --- | --- |", rows)
            rows = []
        section = field.section or section
        rows.append(f"| `{field.name}` | `{c_name(field.type)}` | {field.offset} | {one_line(field.doc)} |")
    yield _table(section, "| field | type | offset | |\n| --- | --- | --- | --- |", rows)


def constant_tables(constants: Iterable[Constant]) -> Iterator[str]:
    """A table for each enum."""
    for (_, section), members in groupby(constants, lambda constant: (constant.type, constant.section)):
        rows = [f"| `{member.name}` | {member.value} | {one_line(member.doc)} |" for member in members]
        yield _table(section, "| name | value | |\n| --- | --- | --- |", rows) + "\n"


def _table(section: str, head: str, rows: Iterable[str]) -> str:
    said = f"{prose(section)}\n\n" if section else ""
    return said + "\n".join([head, *rows])


def c_name(kind: CType, name: str = "") -> str:
    """A C type, with a name declared of it."""
    star = "*" if kind.pointer else ""
    return " ".join(filter(None, ["const" if kind.const else "", kind.name, f"{star}{name}"]))


def prose(text: str) -> str:
    """A comment's text with the header's names as code, and without what Markdown would take for marks."""
    return _NAME.sub(r"`\g<0>`", re.sub(r"\*(?=\S)|<(?=\S)|\|", r"\\\g<0>", text))


def one_line(text: str) -> str:
    """The same in a cell of a table."""
    return prose(" ".join(text.split()))


if __name__ == "__main__":
    main()
