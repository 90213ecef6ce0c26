"""The words of a C header, without what the preprocessor alone reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from flashdepot.errors import IntegrityError

_TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/)"
    r"|(?P<define>\#define[ \t]+(?P<macro>\w+)[ \t]+(?P<value>\d+)\b)"
    r"|(?P<directive>\#(?:[^\n\\]|\\\n)*)"
    r"|(?P<linkage>extern\s+\"C\"\s*\{)"
    r"|(?P<word>\w+|<<|[{}();,=*])"
    r"|(?P<blank>\s+)",
    re.DOTALL,
)


class Token(msgspec.Struct, frozen=True):
    """A word, or the text of a comment; the lines where it begins and ends, from 1."""

    text: str
    line: int
    end_line: int
    is_comment: bool = False


def tokens(text: str) -> Iterator[Token]:
    """Yield a header's words and comments in order.

    A ``#define`` of a number comes as three words; other directives and the braces of ``extern "C"`` are left out.

    :raises IntegrityError: for a character that no C ABI header has.
    """
    at, line, linkage = 0, 1, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise IntegrityError(f"Line {line} of the header has '{text[at]}', which is not read here.")
        at, begun = match.end(), line
        line += match[0].count("\n")
        if match["comment"]:
            yield Token(_plain(match["comment"]), begun, line, is_comment=True)
        elif match["define"]:
            yield from (Token(word, begun, line) for word in ("#define", match["macro"], match["value"]))
        elif match["linkage"]:
            linkage = True
        elif match["word"] and not (match["word"] == "}" and linkage and _closes_linkage(text, at)):
            yield Token(match["word"], begun, line)


def _closes_linkage(text: str, at: int) -> bool:
    """Whether the brace before ``at`` is that of ``extern "C"``: a declaration's is followed by its name or a ``;``."""
    return re.match(r"\s*(/\*.*?\*/\s*)?(#|$)", text[at:], re.DOTALL) is not None


def _plain(comment: str) -> str:
    """A comment's lines without its stars, each stripped."""
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment[2:-2].split("\n")]
    return "\n".join(line.strip() for line in lines).strip()
