"""The lines of a log, without what other programs put in front of them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from flashdepot.doctor.explain.pattern import Pattern

_CHUNK = 1 << 17

_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n\r")
_FULL_WIDTH_COLON = "\uff1a"  # of Chinese and Japanese messages
_C1_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")  # in UTF-8
_COLOUR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")

_BEGIN = Pattern.parse("^")


class Chunk(msgspec.Struct, frozen=True):
    """Lines that follow one another, the number of the first of them from 1, and the same bytes in lower case."""

    first: int
    text: bytes
    lowered: bytes


def read_chunks(stream: BinaryIO) -> Iterator[Chunk]:
    """Read a log piece by piece; memory does not grow with its size, nor with the length of its lines.

    Text is UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it. Bytes that are neither become
    replacement characters: codes and names, which are ASCII in every code page, remain. Colours and all other control
    characters are removed, so that a line can be shown on a terminal, and a carriage return ends a line as well. A line
    that is longer than a chunk goes on in the next one.
    """
    number = 1
    for block in _whole_lines(_utf8(stream)):
        text = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block
        text = _COLOUR.sub(b"", text) if b"\x1b" in text else text
        text = text.translate(None, _CONTROLS)
        lowered = text.lower()
        if not text.isascii():
            characters = _C1_CONTROLS.sub(b"", text).decode(errors="replace").replace(_FULL_WIDTH_COLON, ": ")
            text = characters.encode()
            in_lower_case = characters.lower().encode()
            lowered = in_lower_case if len(in_lower_case) == len(text) else text.lower()
        yield Chunk(number, text, lowered)
        number += text.count(b"\n")


def _utf8(stream: BinaryIO) -> Iterator[bytes]:
    block = stream.read(_CHUNK)
    if block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        while block:
            yield decoder.decode(block).encode("utf-8", "replace")
            block = stream.read(_CHUNK)
        return
    block = block.removeprefix(codecs.BOM_UTF8)
    while block:
        yield block
        block = stream.read(_CHUNK)


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut after the last end of a line; what stands behind it goes in front of the next block."""
    kept = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if not end and len(kept) + len(block) < _CHUNK:
            kept += block
            continue
        cut = end or len(block)
        yield kept + block[:cut]
        kept = block[cut:]
    if kept:
        yield kept


def strip_prefixes(line: bytes) -> str:
    """Return a line without the prefixes of container builds, launchers, loggers, CI services and quotations."""
    found = _BEGIN.search(line)
    return line[found.end() if found else 0 :].decode(errors="replace").strip()
