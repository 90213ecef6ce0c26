"""The lines of a log, without what other programs put in front of them."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

LINE_CAP = 4096
"""Characters of a line that are looked at together; a longer line is taken in pieces of this size."""

_CHUNK_CHARACTERS = 1 << 16
_DEEPEST = 8  # prefixes in front of one another: BuildKit around pip around a compiler, and some reserve

_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")

_PREFIX = re.compile(
    r"""\s*(?:
      \#\d+\ (?:\[[^\]]*\]\ )?(?:\d+\.\d+\ )?                                            # BuildKit: step and seconds
    | \d{1,6}\.\d{1,3}\s+(?=\S)                                                          # BuildKit: seconds alone
    | \[(?:rank|gpu|worker|node)?\ ?\d+(?:,\d+)?\](?:<std(?:err|out)>)?:?\s              # torchrun, mpirun
    | \([\w.:-]+(?:\ \w+=[\w.:-]+)*\ pid=\d+[^)]*\)\s?                                   # Ray, vLLM
    | (?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\s+(?=\[?\d\d(?:\d\d)?[-:]\d\d)
    | \[?\d{4}[-/]\d\d[-/]\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?\]?:?\s*   # dates; GitHub Actions
    | \[?\d\d-\d\d\ \d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s*
    | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ [\w.-]+\ [\w./-]+(?:\[\d+\])?:\s          # syslog
    | [IWEF]\d{4}\ [\d:.]+\s+\d+\ [\w.-]+:\d+\]\s                                        # glog
    | \[[\w./-]+\.(?:py|cpp|cc):\d+\]\s
    | \#\#\[(?:error|warning|debug|group|command)\]
    | ::(?:error|warning)[^:]*::
    | [A-Za-z][\w.-]{0,40}\ +\|\ (?!\^)                                                  # docker compose
    | [│╰╭├└┃─╌\u00d7>▶✗✖]+\s*                                                                  # pip, uv, quotations
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Chunk:
    """Some lines that follow one another, and the number of each, from 1."""

    numbers: tuple[int, ...]
    lines: tuple[str, ...]


def read_chunks(stream: BinaryIO) -> Iterator[Chunk]:
    """Read a log piece by piece; memory does not grow with its size, nor with the length of its lines.

    Text is UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it. Bytes that are neither become
    replacement characters: codes and names, which are ASCII in every code page, remain. Colours are removed.
    """
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream))
    head = buffered.peek(2)[:2]
    encoding = "utf-16" if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    text = io.TextIOWrapper(buffered, encoding=encoding, errors="replace", newline=None)
    number, size = 1, 0
    numbers: list[int] = []
    lines: list[str] = []
    try:
        while piece := text.readline(LINE_CAP):
            numbers.append(number)
            lines.append(_COLOUR.sub("", piece) if "\x1b" in piece else piece)
            number += piece.endswith("\n")
            size += len(piece)
            if size >= _CHUNK_CHARACTERS:
                yield Chunk(tuple(numbers), tuple(lines))
                numbers, lines, size = [], [], 0
        if lines:
            yield Chunk(tuple(numbers), tuple(lines))
    finally:
        text.detach()
        if buffered is not stream:
            buffered.detach()


def strip_prefixes(line: str) -> str:
    """Return a line without the prefixes of container builds, launchers, loggers, CI services and quotations."""
    for _ in range(_DEEPEST):
        found = _PREFIX.match(line)
        if found is None or not found.group():
            break
        line = line[found.end() :]
    return line.strip().replace("\uff1a", ": ")  # the full-width colon of Chinese and Japanese messages
