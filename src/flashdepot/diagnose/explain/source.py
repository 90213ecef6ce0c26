"""Which lines of a log are source: of a program that nobody ran here, or that a traceback shows."""

from __future__ import annotations

import re

_CODE = re.compile(
    r"""[+-]?\s*(?:
    //|/\*|\*/|\"\"\"|'''|@\w|\#(?:include|define|if|ifdef|endif|pragma)\b|<!--
    |(?:async\ )?(?:def|class|fn|func|function|struct|enum|impl|pub|let|const|var|namespace|template|static|auto|void|use|mod|export)[\ <]
    |(?:import|from)\ [\w.]+(?:\ import\b.*|\ as\ \w+)?$|return\b
    |(?:if|elif|while|for|with|except|match|case)\b.*[:{]\ *(?:\#.*)?$|(?:else|try|finally)\ ?[:{]
    |(?:raise|assert|yield|await|del|throw|new)\ (?:[\w.]+\W|[(\"'])|(?:or|and)\ [\"']|(?:pass|break|continue)$
    |(?:[\w.\[\]\"'*&>-]+|[\w:<>]+\ [\w*&]+)\ ?(?:[+|:-]|:\ ?[\w.\[\]]+(?:(?:,|\ \|)\ [\w.\[\]]+)*\ )?=[\ ]
    |(?![\w.]*(?:Error|Exception)\()[\w.:!]+\((?:.*[,;()\[{])?$
    |[})\]]+[;,)]*$
    |\(?[frb]{0,2}[\"'].*[\"'](?:[,;)\]}]+|:\ .*,)$
    |[\w.]+\ ?[:=]\ ?[frb]{0,2}[\"'].*[\"'],$
    |\w+,$|.*[,({\"'&|;]\ ?\\$|[\w.]*(?:Error|Exception)\([frb]?[\"'].*\),$
    |.*[\w)\]\"'\s][;{]$|.*[\w=,]\($
    )""",
    re.VERBOSE,
)
_TEXT = re.compile(r"[frb]{0,2}(?:\"[^\"]*\"|'[^']*')$")
_OPENS = (b"(", b"[", b"{", b",", b'"', b"'")
"""How a line ends that the next one, which is nothing but a text, belongs to."""
_COMMENT = re.compile(r"[+-]?\s*#\s+\S")
_FRAME = re.compile(rb"[^>\s]\", line \d+(?:, in \S+)?\s*$")
_NUMBERED = re.compile("[\\s\u2502\u2771>-]{0,12}\\d{1,5}(?: {2,}|\\s*[\u2502|])".encode())
_TEMPLATE = re.compile(rb"\{[^}]*\}|%[sdr]\b|\.format\(")


def is_code(line: str, before: bytes) -> bool:
    """Whether a line is a statement, a part of one, or a comment of C, C++, Rust, Python or JavaScript."""
    return _CODE.match(line) is not None or (_TEXT.match(line) is not None and before.endswith(_OPENS))


def is_comment(line: str) -> bool:
    """Whether a line is a comment of Python or a shell; a title of markdown looks the same."""
    return _COMMENT.match(line) is not None


def is_shown(line: bytes, before: bytes) -> bool:
    """Whether a line is source that a traceback shows: a frame stands before it, or its number in it."""
    return _NUMBERED.match(line) is not None or _FRAME.search(before) is not None


def is_template(line: bytes) -> bool:
    """Whether a text in source still has places to be filled in: what was printed has other words."""
    return _TEMPLATE.search(line) is not None
