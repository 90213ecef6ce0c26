"""The compatibility table as one HTML page, complete without scripts, which only filter."""

from __future__ import annotations

from collections import Counter
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from flashdepot.catalog.load import Catalog
from flashdepot.catalog.matrix import (
    Row,
    abi_word,
    package_words,
    platform_words,
    python_of,
    release_name,
    rows,
)
from flashdepot.model.target import Architecture

_HERE = Path(__file__).parent


@cache
def style() -> str:
    """The style sheet of every page."""
    return (_HERE / "look.css").read_text(encoding="utf-8")


_TEMPLATE = Path(__file__).with_name("matrix_page.html")
_COLUMNS = (
    "flash-attn", "torch", "CUDA", "C++11 ABI", "Python", "Platform", "Machine code", "Source", "Existence",
)  # fmt: skip
_PYTHON = _COLUMNS.index("Python")
_LINKED = ("https://", "http://", "file://")
_NOT_SAID = "not said"
_NOT_KNOWN = "not known"


def page(catalog: Catalog) -> str:
    """The page: every wheel of the catalog is in its table."""
    table = rows(catalog.wheels)
    counts = Counter(wheel.source for wheel in catalog.wheels)
    collections = (
        f'<tr><th scope="row">{_link_to(c.page, escape(c.name))}</th><td>{escape(c.kind)}</td>'
        f"<td>{counts[c.name]:,}</td><td>{escape(c.listed[:10])}</td><td>{escape(c.licence or _NOT_SAID)}</td></tr>"
        for c in catalog.collections
    )
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        count=f"{len(catalog.wheels):,}",
        date=escape(max((c.listed[:10] for c in catalog.collections), default="no day")),
        collections="\n".join(collections),
        style=style(),
        labels="\n".join(
            f'  .wheels td:nth-child({number})::before {{ content: "{name}: "; }}'
            for number, name in enumerate(_COLUMNS[1:], start=2)
        ),
        cuda=_COLUMNS.index("CUDA"),
        filters="".join(f'<td><input aria-label="Filter by {name}" placeholder="{name}"></td>' for name in _COLUMNS),
        columns="".join(f'<th scope="col">{name}</th>' for name in _COLUMNS),
        rows="\n".join(map(_row, table)),
    )


def _row(row: Row) -> str:
    """A row without the closing tags that HTML lets be left out: they would be a tenth of the page."""
    cells = list(map(escape, _values(row)))
    if row[0].seen:
        linked = (
            _link_to(wheel.url, escape(label), "" if label == python_of(wheel) else ' class="earlier"')
            for wheel, label in zip(row, _labels(row), strict=True)
        )
        cells[_PYTHON] = ", ".join(linked)
    else:
        release = row[0].url.rpartition("/")[0].replace("/releases/download/", "/releases/tag/")
        cells[-1] = _link_to(release, cells[-1])  # where a person sees whether it exists
    first, *others = cells
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}" for cell in others)


def _values(row: Row) -> tuple[str, ...]:
    wheel = row[0]
    return (
        package_words(wheel),
        wheel.torch or _NOT_SAID,
        wheel.cuda or _NOT_SAID,
        abi_word(wheel) or _NOT_SAID,
        ", ".join(_labels(row)),
        platform_words(wheel),
        ", ".join(Architecture.parse(code).dotted for code in wheel.sass) or _NOT_KNOWN,
        wheel.source,
        "seen" if wheel.seen else "expected",
    )


def _link_to(address: str, text: str, more: str = "") -> str:
    """A link, or only the text, which is HTML, where a browser must not follow the address: ``javascript:``, say."""
    if not address.lower().startswith(_LINKED):
        return text
    return f'<a{more} href="{escape(address)}">{text}</a>'


def _labels(row: Row) -> list[str]:
    """The Python of each wheel, with the release where an earlier release has a wheel of the same name."""
    labels: list[str] = []
    for wheel in row:
        label = python_of(wheel)
        labels.append(f"{label} in {release_name(wheel)}" if label in labels else label)
    return labels
