"""Write docs/c-api.md from flash_attention.h: its comments as text, its declarations as they are.

Usage: python scripts/write_c_reference.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
PAGE = ROOT / "docs/c-api.md"

_HEAD = """\
# What does each C function and field do?

Everything that `#include <flash_attention.h>` declares, written from the header by `scripts/write_c_reference.py`.
[C, C++ and CMake](cpp.md) shows how to link it.

"""

_FIRST_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_EXAMPLE = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_NAME = re.compile(r"\b(fa_\w+|FA_\w+)\b(\(\))?")
_TITLE = re.compile(r"^(\w[\w ]+)\n(?=- )", re.MULTILINE)
_DECLARATIONS = re.compile(r"(?:^/\*(?P<comment>.*?)\*/\n)?(?P<code>(?!/\*|#|\n).+?)\n\n", re.DOTALL | re.MULTILINE)
_DECLARED = re.compile(r"^typedef struct (\w+)|(\w+)\([^()]*\) FA_NOEXCEPT;|FA_INLINE \w+ (\w+)\(", re.MULTILINE)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def page(header: str) -> str:
    """The text of the page for the text of a header."""
    _, _, declared = header.partition('extern "C" {\n#endif\n\n')
    declared, _, _ = declared.partition("#ifdef __cplusplus\n}")
    return _HEAD + introduction(header) + "\n" + "\n".join(sections(declared))


def introduction(header: str) -> str:
    """The header's first comment: its code in a block, and the lines above its lists as headings."""
    match = _FIRST_COMMENT.search(header)
    plain = _text(match[1] if match else "").partition("\n\n")[2]
    written, at = "", 0
    for code in _EXAMPLE.finditer(plain):
        written += prose(plain[at : code.start()])
        written += "```c\n" + re.sub("^ {4}", "", code[0], flags=re.MULTILINE) + "```\n"
        at = code.end()
    return _TITLE.sub(r"## \1\n\n", written + prose(plain[at:]))


def sections(declared: str) -> Iterator[str]:
    """A heading, the comment and the code of each declaration. Code up to a blank line within braces is one."""
    joined = re.sub(r"\{[^{}]*\}", lambda braces: braces[0].replace("\n\n", "\n\0\n"), declared)
    for match in _DECLARATIONS.finditer(joined):
        code = match["code"].replace("\0", "")
        names = [name for found in _DECLARED.findall(code) for name in found if name]
        heading = f"### {names[0]}\n\n" if names else ""
        comment = prose(_text(match["comment"] or ""))
        yield f"{heading}{comment}\n```c\n{code}\n```\n" if comment.strip() else f"{heading}```c\n{code}\n```\n"


def prose(text: str) -> str:
    """A comment's text with the header's names as code, and without what Markdown would take for marks."""
    return _NAME.sub(r"`\g<0>`", re.sub(r"\*(?=\S)|<(?=\S)|\|", r"\\\g<0>", text))


def _text(comment: str) -> str:
    lines = (re.sub(r"^ \* ?", "", line).rstrip() for line in comment.splitlines())
    return "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    main()
