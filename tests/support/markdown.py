"""A page of Markdown, read into what can be true or false about it: headings, links, code blocks, code spans, tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARK = re.compile(r"<!--\s*(needs|file)\b:?\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """The comment right before a code block: ``<!-- needs gpu: why -->`` or ``<!-- file: NAME -->``."""

    kind: str
    text: str


@dataclass(frozen=True)
class Fence:
    language: str
    text: str
    line: int
    mark: Mark | None


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Page:
    path: Path
    headings: tuple[Heading, ...]
    links: tuple[str, ...]
    fences: tuple[Fence, ...]
    spans: tuple[str, ...]
    table_rows: tuple[int, ...]
    """Rows of each table, its head counted in."""


@cache
def read_page(path: Path) -> Page:
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    targets = (str(child.attrGet("href") or child.attrGet("src") or "") for child in inline)
    return Page(
        path,
        headings=tuple(_headings(tokens)),
        links=tuple(target for target in targets if target),
        fences=tuple(_fences(tokens)),
        spans=tuple(child.content for child in inline if child.type == "code_inline"),
        table_rows=tuple(_table_rows(tokens)),
    )


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    """Headings with the anchors that Git hosts and MyST give them."""
    seen: Counter[str] = Counter()
    for opened, content in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            yield Heading(int(opened.tag[1]), text, f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1


def _fences(tokens: list[Token]) -> Iterator[Fence]:
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence":
            comment = _MARK.fullmatch(before.content.strip()) if before and before.type == "html_block" else None
            mark = Mark(comment[1], comment[2]) if comment else None
            line = token.map[0] + 1 if token.map else 0
            yield Fence(token.info.split()[0] if token.info.strip() else "", token.content, line, mark)


def _table_rows(tokens: list[Token]) -> Iterator[int]:
    rows = 0
    for token in tokens:
        rows += token.type == "tr_open"
        if token.type == "table_close":
            yield rows
            rows = 0
