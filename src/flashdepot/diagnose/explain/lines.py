"""The lines of a log, without what other programs put in front of them."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from flashdepot.diagnose.explain.pattern import Pattern

_CHUNK = 1 << 17

_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n\r")
_SPELLINGS = {
    "\uff1a": ": ",  # the colon of Chinese and Japanese messages
    "\u00a0": " ",
    "\u200b": "",
    "\u2011": "-",
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
}
_SPELLED = re.compile(f"[{''.join(_SPELLINGS)}]")
_C1_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")  # in UTF-8
_COLOUR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|\[\d{1,3}(?:;\d{1,3}){0,4}m")
"""A colour, also where what carried the log has taken its first byte away."""

_BEGIN = Pattern.parse("^")

_ENTITIES = {
    b"&lt;": b"<",
    b"&gt;": b">",
    b"&amp;": b"&",
    b"&quot;": b'"',
    b"&#39;": b"'",
    b"&#x27;": b"'",
    b"&nbsp;": b" ",
}
_ENTITY = re.compile(b"|".join(_ENTITIES))
_BREAK = re.compile(rb"<br ?/?>", re.IGNORECASE)
_TAG = re.compile(rb"</?(?:pre|code|details|summary|samp)(?: [^<>\n]{0,80})?>", re.IGNORECASE)
_LINK = re.compile(rb"\[([^\[\]\n]{1,300})\]\([^()\s]{1,400}\)")  # of markdown
_BOLD = re.compile(rb"\*\*([^\s*][^*\n]{0,300})\*\*")
_ESCAPED_QUOTE = re.compile(rb"\\{1,3}(['\"])")
_ESCAPED_END = re.compile(rb"(?:\\{1,2}r)?\\{1,2}n(?=[\s'\"\[({+~^|*#\\A-Z-]|$|error|fatal|nvcc fatal|ninja)")


class Chunk(msgspec.Struct, frozen=True):
    """Lines that follow one another, the number of the first of them from 1, and the same bytes in lower case.

    ``added`` are ends of lines that the log has not, by their bytes.
    """

    first: int
    text: bytes
    lowered: bytes
    added: tuple[int, ...] = ()

    def number(self, position: int) -> int:
        """The line of the log that a byte stands in."""
        return self.first + self.text.count(b"\n", 0, position) - self.added_before(position)

    def added_before(self, position: int) -> int:
        """How many ends of lines before a byte the log has not."""
        return bisect_left(self.added, position)

    def line(self, start: int, stop: int) -> str:
        """What stands between two bytes, without the prefixes of other programs."""
        return strip_prefixes(self.text[start:stop])


def read_chunks(stream: BinaryIO) -> Iterator[Chunk]:
    """Read a log piece by piece; memory does not grow with its size, nor with the length of its lines.

    Text is UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it. Bytes that are neither become
    replacement characters: codes and names, which are ASCII in every code page, remain. Colours and all other control
    characters are removed, so that a line can be shown on a terminal, and a carriage return ends a line as well. A line
    that is longer than a chunk continues in the next one.
    """
    number = 1
    for block in _whole_lines(_utf8(stream)):
        text = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block
        text = _COLOUR.sub(b"", text) if b"\x1b" in text or b"[0m" in text else text
        text = text.translate(None, _CONTROLS)
        if not text.isascii():
            plain = _C1_CONTROLS.sub(b"", text).decode(errors="replace")
            text = _SPELLED.sub(lambda found: _SPELLINGS[found[0]], plain).encode()
        ends = text.count(b"\n")
        text, added = _unquoted(text)
        lowered = text.lower()
        if not text.isascii() and len(other := text.decode(errors="replace").lower().encode()) == len(text):
            lowered = other
        yield Chunk(number, text, lowered, added)
        number += ends


def _unquoted(text: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Text as it was before a program put it into a string or a page, and where lines end that the log does not end."""
    if b"&" in text:
        text = _ENTITY.sub(lambda found: _ENTITIES[found[0]], text)
    if b"\\" in text:
        text = _ESCAPED_QUOTE.sub(rb"\1", text)
        if b"\\n" in text:
            text = b"\n".join(map(_with_its_ends, text.split(b"\n")))
    if b"<" in text:
        text = _BREAK.sub(b"\x00", text)
        text = _TAG.sub(b"", text)
    if b"](" in text:
        text = _LINK.sub(rb"\1", text)
    if b"**" in text:
        text = _BOLD.sub(rb"\1", text)
    if b"\x00" not in text:
        return text, ()
    added = tuple(found.start() for found in re.finditer(b"\x00", text))
    return text.replace(b"\x00", b"\n"), added


def _with_its_ends(line: bytes) -> bytes:
    """A line that is a whole text in a string, whose ends of lines are written as escapes."""
    return _ESCAPED_END.sub(b"\x00", line) if line.count(b"\\n") > 1 else line


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
        if len(kept) + len(block) < _CHUNK:
            kept += block
            continue
        cut = block.rfind(b"\n") + 1 or len(block)
        yield kept + block[:cut]
        kept = block[cut:]
    if kept:
        yield kept


def strip_prefixes(line: bytes) -> str:
    """Return a line without the prefixes of container builds, launchers, loggers, CI services and quotations."""
    found = _BEGIN.search(line)
    return line[found.end() if found else 0 :].decode(errors="replace").strip()


def begin_of_line(text: bytes, position: int) -> int:
    """Where the line that holds a position begins: behind the line feed before it, or at the beginning of the text."""
    return text.rfind(b"\n", 0, position) + 1


def end_of_line(text: bytes, position: int) -> int:
    """Where the line that holds a position ends: before its line feed, or at the end of the text."""
    end = text.find(b"\n", position)
    return end if end >= 0 else len(text)
