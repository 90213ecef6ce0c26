"""The compatibility table as one HTML page, complete without scripts, and what our pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from string import Template

import msgspec

from flashdepot.catalog.load import Catalog
from flashdepot.catalog.matrix import (
    Row,
    abi_word,
    by_version,
    package_words,
    platform_words,
    python_of,
    python_order,
    release_name,
    rows,
    serves,
)
from flashdepot.facts import default_cxx11_abi
from flashdepot.facts.gpus import known_architectures
from flashdepot.kernels import oldest_gpu
from flashdepot.model.target import Architecture
from flashdepot.model.wheel import OFFICIAL, Interpreter

_HERE = Path(__file__).parent


@cache
def style() -> str:
    """The style sheet of every page."""
    return (_HERE / "look.css").read_text(encoding="utf-8")


@cache
def copy_script() -> str:
    """What makes the buttons of :func:`command` work; they are hidden without it."""
    return (_HERE / "copy.js").read_text(encoding="utf-8")


def command(identifier: str, text: str, what: str) -> str:
    """A command with its button; ``what`` says to a screen reader what is copied."""
    return (
        f'<div class="command"><pre tabindex="0" id="{identifier}">{escape(text)}</pre>'
        f'<button type="button" data-copy="{identifier}" aria-label="Copy {escape(what)}" hidden>Copy</button></div>'
    )


_TEMPLATE = Path(__file__).with_name("matrix_page.html")
_COLUMNS = (
    "flash-attn", "torch", "CUDA", "C++11 ABI", "Python", "Platform", "Machine code", "Source", "Existence",
)  # fmt: skip
_FIRST = 5
"""How many filters are shown at once: with these one wheel is found. The others are for looking around."""
_PYTHON = _COLUMNS.index("Python")
_LINKED = ("https://", "http://", "file://")
_NOT_SAID = "not said"
_NOT_KNOWN = "not known"


class _Option(msgspec.Struct, frozen=True):
    """One choice of a filter, and the values of the column that it lets through."""

    label: str
    accepts: tuple[str, ...]


def page(catalog: Catalog) -> str:
    """The page: every wheel of the catalog is in its table."""
    table = rows(catalog.wheels)
    filters = list(_filters(table))
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
        filters="\n".join(filters[:_FIRST]),
        more_filters="\n".join(filters[_FIRST:]),
        take=command("take", "pip install", "the command"),
        python=_PYTHON,
        code=_COLUMNS.index("Machine code"),
        copy=copy_script(),
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
    file = _file_of_pytorchs_builds(row)
    begin = f'<tr data-file="{escape(file)}">' if file else "<tr>"
    return f'{begin}<th scope="row">{first}</th>' + "".join(f"<td>{cell}" for cell in others)


def _file_of_pytorchs_builds(row: Row) -> str:
    """The address of an official wheel, with ``{}`` for its Python tag, if it is for torch as PyTorch builds it.

    ``resolve`` takes those unasked, and no others: not what others have published, nor a wheel of the other C++ ABI.
    """
    wheel = row[0]
    machine = "aarch64" if wheel.platform.endswith("aarch64") else "x86_64"
    if wheel.source != OFFICIAL or not wheel.torch or not wheel.url.lower().startswith(_LINKED):
        return ""
    if wheel.platform.startswith("linux") and default_cxx11_abi(wheel.torch, "", machine) is not wheel.cxx11_abi:
        return ""
    return wheel.url.replace(f"-{wheel.python}-{wheel.abi}-", "-{}-{}-")


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


def _filters(table: list[Row]) -> Iterator[str]:
    columns = list(zip(*map(_values, table), strict=True)) or [()] * len(_COLUMNS)
    distinct = [sorted({value for cell in column for value in cell.split(", ")}) for column in columns]
    package, torch, cuda, abi, _, platform, code, source, existence = distinct
    choices = (
        ("gpu", 6, "GPU (compute capability)", _gpus(code)),
        ("platform", 5, "Platform", _platforms(platform)),
        ("torch", 1, "torch", _within(torch, 2)),
        # A wheel that names only CUDA's major version serves every minor one.
        (
            "cuda",
            2,
            "CUDA of torch",
            [_Option(o.label, (*o.accepts, o.accepts[0].partition(".")[0])) for o in _within(cuda, 1)],
        ),
        ("python", _PYTHON, "Python", _pythons(table)),
        ("version", 0, "flash-attn version", _plain(package, newest_first=True)),
        ("abi", 3, "C++11 ABI", _plain(abi)),
        ("source", 7, "Source", _plain(source)),
        ("existence", 8, "Existence", _plain(existence)),
    )
    for name, column, label, options in choices:
        lines = [
            f'<div><label for="{name}">{label}</label><select id="{name}" name="{name}" data-column="{column}">',
            '<option value="" data-accepts="">all</option>',
        ]
        for option in options:
            accepts = escape(", ".join(option.accepts))
            lines.append(
                f'<option value="{escape(option.accepts[0])}" data-accepts="{accepts}">{escape(option.label)}</option>'
            )
        yield "\n".join([*lines, "</select></div>"])


def _plain(values: Iterable[str], *, newest_first: bool = False) -> list[_Option]:
    def order(value: str) -> tuple[bool, str, object]:
        distribution, _, version = value.rpartition(" ")
        return (not distribution, distribution, by_version(version))

    ordered = sorted(values, key=order, reverse=True) if newest_first else values
    return [_Option(value, (value,)) for value in ordered]


def _within(values: Iterable[str], parts: int) -> list[_Option]:
    """Versions, and before those that share their first ``parts`` numbers one option for all of them."""
    numbers = sorted((v for v in values if v != _NOT_SAID), key=by_version, reverse=True)
    options = []
    for common, members in _grouped(numbers, lambda value: ".".join(value.split(".")[:parts])):
        options.append(_Option(common if members == [common] else f"{common}.*", (common, *members)))
        options += [_Option(value, (value,)) for value in members if len(members) > 1 and value != common]
    return options


def _grouped(values: Iterable[str], key: Callable[[str], str]) -> Iterable[tuple[str, list[str]]]:
    """The values of each key, in the order in which they come."""
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups.items()


def _pythons(table: list[Row]) -> list[_Option]:
    """Each Python, with the wheels for the stable ABI that it can use."""
    examples = {python_of(wheel): wheel for row in table for wheel in row}
    labels = sorted(
        (label for label in examples if label[-1:] != "+" and "-" not in label), key=python_order, reverse=True
    )
    options = []
    for label in labels:
        python = Interpreter.parse(examples[label].abi)
        others = (other for other, wheel in examples.items() if other != label and serves(wheel, python))
        options.append(_Option(label, (label, *others)))
    return options


def _platforms(values: Iterable[str]) -> list[_Option]:
    """Each system and processor, then those of its wheels that name the GNU libc they need."""
    options = []
    for family, members in _grouped(values, lambda value: value.partition(" (")[0]):
        options.append(_Option(family, (family, *members)))
        options += [_Option(value, (value,)) for value in members if value != family]
    return options


def _gpus(codes: Iterable[str]) -> list[_Option]:
    """Each compute capability that the kernels run on, with the machine code that runs on it."""
    known = [Architecture.parse(code) for code in codes if code != _NOT_KNOWN]
    return [
        _Option(f"{gpu.architecture.dotted} {gpu.gpus}", ("gpu " + gpu.architecture.dotted, *suitable))
        for gpu in known_architectures()
        if gpu.architecture >= oldest_gpu()
        and (suitable := [code.dotted for code in known if code.runs_on(gpu.architecture)])
    ]
