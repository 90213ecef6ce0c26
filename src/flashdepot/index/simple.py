"""The pages that installers read: PEP 503 in HTML, PEP 691 and 700 in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import msgspec
from packaging.version import Version

from flashdepot.index.subindexes import Subindex
from flashdepot.model.index_record import IndexedFile
from flashdepot.model.wheel import FLASH_ATTN, OLDEST_PYTHON

API_VERSION = "1.4"
"""Of the simple repository API: sizes and times (PEP 700), status of the project (PEP 792)."""

FILES = "files"
"""The folder of an index with the wheels, next to those of its subindexes."""

_REQUIRES_PYTHON = f">={OLDEST_PYTHON}"
_TO_FILES = f"../../{FILES}/"
"""From a project's page."""


class PageFile(msgspec.Struct, frozen=True):
    """A file that is not a wheel and is on a page: the variants of a version (PEP 825)."""

    filename: str
    sha256: str
    size: int
    uploaded: str


_Offered = tuple[IndexedFile, str]
"""A wheel, and why it is yanked, empty where it is not."""


def simple_pages(subindex: Subindex, names: Sequence[IndexedFile], others: Sequence[PageFile]) -> Mapping[str, bytes]:
    """The pages of a subindex by their place in it: two for each project, two for the list of projects.

    :param names: the wheels without a library, which every subindex has.
    :param others: files of flash-attn that are no wheels.
    """
    projects: dict[str, list[_Offered]] = {}
    for wheel, reason in (
        *((o.wheel, o.instead and f"for those who pin it; others get {o.instead}") for o in subindex.offers),
        *((file, "") for file in names),
    ):
        projects.setdefault(wheel.distribution, []).append((wheel, reason))
    pages = {
        "index.html": _html("Projects", [f'<a href="{name}/">{name}</a>' for name in sorted(projects)]),
        "index.json": _json(
            {"meta": {"api-version": API_VERSION}, "projects": [{"name": name} for name in sorted(projects)]}
        ),
    }
    for name, offered in projects.items():
        beside = others if name == FLASH_ATTN else ()
        pages[f"{name}/index.html"] = _project_html(name, offered, beside)
        pages[f"{name}/index.json"] = _json(_project(name, offered, beside))
    return pages


def file_address(filename: str) -> str:
    """A file's name in an address."""
    return quote(filename)


def _project(name: str, offered: Sequence[_Offered], others: Sequence[PageFile]) -> dict[str, Any]:
    versions = sorted({wheel.version for wheel, _ in offered}, key=Version)
    return {
        "meta": {"api-version": API_VERSION},
        "name": name,
        "project-status": {"status": "active"},
        "versions": versions,
        "files": [
            *(_wheel(wheel, reason) for wheel, reason in offered),
            *({**_file(file), "yanked": False} for file in others),
        ],
    }


def _wheel(wheel: IndexedFile, reason: str) -> dict[str, Any]:
    sidecar = {"sha256": wheel.metadata_sha256}
    return {
        **_file(wheel),
        "requires-python": _REQUIRES_PYTHON,
        "core-metadata": sidecar,
        "dist-info-metadata": sidecar,  # its name before PEP 714
        "yanked": reason or False,
    }


def _file(file: IndexedFile | PageFile) -> dict[str, Any]:
    return {
        "filename": file.filename,
        "url": f"{_TO_FILES}{file_address(file.filename)}",
        "hashes": {"sha256": file.sha256},
        "size": file.size,
        "upload-time": file.uploaded,
    }


def _project_html(name: str, offered: Sequence[_Offered], others: Sequence[PageFile]) -> bytes:
    links = [_link(wheel, reason) for wheel, reason in offered]
    links += [_anchor(file.filename, file.sha256, "") for file in others]
    return _html(f"Links for {name}", links)


def _link(wheel: IndexedFile, reason: str) -> str:
    sidecar = f"sha256={wheel.metadata_sha256}"
    yanked = f' data-yanked="{escape(reason)}"' if reason else ""
    return _anchor(
        wheel.filename,
        wheel.sha256,
        f' data-requires-python="{escape(_REQUIRES_PYTHON)}" data-core-metadata="{sidecar}"'
        f' data-dist-info-metadata="{sidecar}"{yanked}',
    )


def _anchor(filename: str, sha256: str, attributes: str) -> str:
    address = escape(f"{_TO_FILES}{file_address(filename)}")
    return f'<a href="{address}#sha256={sha256}"{attributes}>{escape(filename)}</a>'


def _html(title: str, links: Iterable[str]) -> bytes:
    lines = "<br>\n".join(links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="pypi:repository-version" content="{API_VERSION}">\n<title>{escape(title)}</title>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n{lines}\n</body>\n</html>\n"
    ).encode()


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
