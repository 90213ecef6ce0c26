"""The pages of an index: those that installers read (PEP 503 in HTML, PEP 691 and 700 in JSON), and the one for people.

That one says who needs what, in one file that fetches nothing. It works without scripts, which only copy and put in the
address of the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from packaging.version import Version

from flashdepot.catalog.matrix_page import style
from flashdepot.facts.gpus import KnownArchitecture, known_architectures
from flashdepot.index.subindexes import (
    EVERYBODY,
    Subindex,
    contents_label,
    contents_of,
    subindex_name,
    wheels_for,
)
from flashdepot.kernels import oldest_gpu
from flashdepot.model.index_record import IndexedFile, IndexedWheel, IndexRecord
from flashdepot.model.limits import size
from flashdepot.model.target import Architecture
from flashdepot.model.wheel import FLASH_ATTN, OLDEST_PYTHON, OLDEST_TORCH

API_VERSION = "1.4"
"""Of the simple repository API: sizes and times (PEP 700), status of the project (PEP 792)."""

FILES = "files"
"""The folder of an index with the wheels, next to those of its subindexes."""

_TO_FILES = f"../../{FILES}/"
"""From a project's page."""


def simple_pages(subindex: Subindex, names: Sequence[IndexedFile]) -> Mapping[str, bytes]:
    """The pages of a subindex by their place in it; ``names`` are the wheels without a library, which every subindex has."""
    versions: dict[str, set[str]] = {}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for wheel, instead in (
        *((offer.wheel, offer.instead) for offer in subindex.offers),
        *((file, "") for file in names),
    ):
        versions.setdefault(wheel.distribution, set()).add(wheel.version)
        rows.setdefault(wheel.distribution, []).append(_wheel_row(wheel, instead))
    meta = {"meta": {"api-version": API_VERSION}}
    pages = {
        "index.html": _html("Projects", [f'<a href="{name}/">{name}</a>' for name in sorted(rows)]),
        "index.json": document_text({**meta, "projects": [{"name": name} for name in sorted(rows)]}),
    }
    for name, offered in rows.items():
        known = {"project-status": {"status": "active"}, "versions": sorted(versions[name], key=Version)}
        pages[f"{name}/index.html"] = _html(f"Links for {name}", map(_link, offered))
        pages[f"{name}/index.json"] = document_text({**meta, "name": name, **known, "files": offered})
    return pages


def _wheel_row(wheel: IndexedFile, instead: str) -> dict[str, Any]:
    """:param instead: the wheel that others get, who do not pin this one; empty where they get it."""
    sidecar = {"sha256": wheel.metadata_sha256}
    return {
        "filename": wheel.filename,
        "url": f"{_TO_FILES}{quote(wheel.filename)}",
        "hashes": {"sha256": wheel.sha256},
        "size": wheel.size,
        "upload-time": wheel.uploaded,
        "requires-python": f">={OLDEST_PYTHON}",
        "core-metadata": sidecar,
        "dist-info-metadata": sidecar,  # its name before PEP 714
        "yanked": f"for those who pin it; others get {instead}" if instead else False,
    }


def _link(row: Mapping[str, Any]) -> str:
    sidecar = f"sha256={row['core-metadata']['sha256']}"
    said = {
        "requires-python": row["requires-python"],
        "core-metadata": sidecar,
        "dist-info-metadata": sidecar,
        "yanked": row["yanked"],
    }
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in said.items() if value)
    address = f"{escape(row['url'])}#sha256={row['hashes']['sha256']}"
    return f'<a href="{address}"{attributes}>{escape(row["filename"])}</a>'


def _html(title: str, links: Iterable[str]) -> bytes:
    lines = "<br>\n".join(links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="pypi:repository-version" content="{API_VERSION}">\n<title>{escape(title)}</title>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n{lines}\n</body>\n</html>\n"
    ).encode()


def document_text(document: Mapping[str, Any]) -> bytes:
    """A document as the index holds it."""
    return (json.dumps(document, indent=1) + "\n").encode()


_TEMPLATE = Path(__file__).with_name("page.html")
_HERE = "https://ADDRESS-OF-THIS-PAGE/"
"""Stands for the index's address where nobody has said it; a script puts the page's own in its place."""

_MEGABYTE = 1e6
_SHADES = ((0, "none"), (50, "small"), (200, "middle"), (1 << 40, "large"))
"""Megabytes up to which a cell of the heat map has a shade."""


def page(record: IndexRecord, shown: Sequence[Subindex]) -> str:
    """The page. Every file of the index is on it, for whom it is, and how to have it in one command."""
    base = record.url or _HERE
    ours = [wheel for wheel in record.wheels if wheel.distribution == FLASH_ATTN]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        style=style(),
        gpus="\n".join(_for_gpu(gpu, found, base) for gpu in known_architectures() if (found := wheels_for(gpu, ours))),
        build=_command("build", "flashdepot install -y", "the command"),
        count=len(ours),
        versions=escape(", ".join(sorted({Version(w.version).public for w in ours}, key=Version, reverse=True))),
        heads="".join(f'<th scope="col">{gpu.dotted}</th>' for gpu in _gpus()),
        heat="\n".join(_heat(ours)),
        files="\n".join(
            _file(number, file) for number, file in enumerate((*_newest_first(record.wheels), *record.names))
        ),
        subindexes="\n".join(_subindex(subindex, base) for subindex in shown),
        project=_command("project", _project(base), "the lines for pyproject.toml"),
        address=""
        if record.url
        else f'<p id="address">Put the address of this page in place of <code>{_HERE}</code>.</p>',
        placeholder=_HERE,
        copy=Path(__file__).with_name("copy.js").read_text(encoding="utf-8"),
    )


def _command(identifier: str, text: str, what: str) -> str:
    """A command with its button, hidden without scripts; ``what`` says to a screen reader what is copied."""
    return (
        f'<div class="command"><pre tabindex="0" id="{identifier}">{escape(text)}</pre>'
        f'<button type="button" data-copy="{identifier}" aria-label="Copy {escape(what)}" hidden>Copy</button></div>'
    )


def _for_gpu(gpu: KnownArchitecture, wheels: Sequence[IndexedWheel], base: str) -> str:
    """The wheels for a GPU, folded up."""
    generation, _, cards = gpu.gpus.partition(": ")
    name = f"{cards} ({generation})" if cards else generation
    shown = "".join(_answer(f"{gpu.architecture}-{number}", wheel, base) for number, wheel in enumerate(wheels))
    heading = f"{escape(name)} <small>{gpu.architecture.dotted}</small>"
    return f'<details name="gpu" class="gpu"><summary>{heading}</summary>{shown}</details>'


def _answer(identifier: str, wheel: IndexedWheel, base: str) -> str:
    address = f"{base}{FILES}/{quote(wheel.filename)}#sha256={wheel.sha256}"
    libc = f" GNU libc {wheel.libc_floor} or newer," if wheel.libc_floor else ""
    return (
        f'<article class="answer"><h2>{escape(wheel.platform.label)}, flash-attn {escape(Version(wheel.version).public)}, '
        f"{escape(contents_label(contents_of(wheel)))}, {size(wheel.size)}</h2>"
        f"{_command(f'pip-{identifier}', _install('pip install', address), 'the command for pip')}"
        f"{_command(f'uv-{identifier}', _install('uv pip install', address), 'the command for uv')}"
        f"<p>It needs an NVIDIA driver {escape(str(wheel.driver_floor))} or newer,{escape(libc)} Python {OLDEST_PYTHON} or "
        f"newer and any torch from {OLDEST_TORCH} on that is built with CUDA. The digest in the command is verified.</p>"
        "</article>"
    )


def _install(program: str, address: str) -> str:
    return f'{program} "flash-attn @ {address}"'


def _project(base: str) -> str:
    return (
        '[[tool.uv.index]]\nname = "flashdepot"\n'
        f'url = "{base}{EVERYBODY}/"\nexplicit = true\n\n'
        '[tool.uv.sources]\nflash-attn = { index = "flashdepot" }'
    )


def _gpus() -> list[Architecture]:
    return [known.architecture for known in known_architectures() if known.architecture >= oldest_gpu()]


def _heat(wheels: Sequence[IndexedWheel]) -> Iterator[str]:
    rows: dict[tuple[str, str, str, str], list[IndexedWheel]] = {}
    for wheel in _newest_first(wheels):
        cuda = ".".join(map(str, (*wheel.cuda.numbers, 0)[:2]))
        key = (Version(wheel.version).public, contents_label(contents_of(wheel)), cuda, wheel.platform.label)
        rows.setdefault(key, []).append(wheel)
    gpus = _gpus()
    for (version, *facts), alike in rows.items():
        yield f'<tr><th scope="row">{escape(version)}</th>' + "".join(f"<td>{escape(fact)}</td>" for fact in facts)
        for gpu in gpus:
            sizes = [wheel.size for wheel in alike if any(code.runs_on(gpu) for code in wheel.sass)]
            shade = next(name for most, name in _SHADES if (min(sizes) / _MEGABYTE if sizes else 0) <= most)
            yield f'<td class="{shade}">{size(min(sizes)) if sizes else "none"}</td>'
        yield "</tr>"


def _file(number: int, file: IndexedFile) -> str:
    place = f"{FILES}/{quote(file.filename)}"
    code, tools, proof = "none: it needs flash-attn", "none", "none"
    if isinstance(file, IndexedWheel):
        code = ", ".join(architecture.dotted for architecture in file.sass)
        tools = ", ".join((*file.tools, f"flashdepot {file.flashdepot}"))
        proof = f'<a href="{escape(place)}.manifest.json">manifest of {escape(file.recipe_key[:12])}</a>'
    cells = (
        ("Size", size(file.size)),
        ("Machine code", escape(code)),
        ("SHA-256", _command(f"digest-{number}", file.sha256, f"the SHA-256 of {file.filename}")),
        ("Toolchain", escape(tools)),
        ("Proof", proof),
        ("Since", escape(file.uploaded[:10])),
    )
    shown = "".join(f'<td data-label="{label}">{text}</td>' for label, text in cells)
    return f'<tr><th scope="row"><a href="{escape(place)}">{escape(file.filename)}</a></th>{shown}</tr>'


def _subindex(subindex: Subindex, base: str) -> str:
    taken = subindex.taken[0]
    what = "the one for everybody" if subindex.name == EVERYBODY else escape(subindex_name(taken).replace("-", ", "))
    return f"<li><code>{escape(base)}{escape(subindex.name)}/</code>: {what}</li>"


def _newest_first(wheels: Sequence[IndexedWheel]) -> list[IndexedWheel]:
    ordered = sorted(wheels, key=lambda wheel: wheel.filename)
    return sorted(ordered, key=lambda wheel: Version(Version(wheel.version).public), reverse=True)
