"""Files that a source lists, read from the documents of its API, and the wheels among them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from packaging.version import Version

from flashdepot.errors import UsageError
from flashdepot.facts import read_table
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.wheel import WheelName, canonical_name, filename_of_url

_TABLE = Path(__file__).parent / "machine_code.toml"

Sass = tuple[str, ...]


class _Build(msgspec.Struct, frozen=True):
    """What versions of a distribution are built for, by the oldest nvcc for which that holds; the newest nvcc first."""

    distribution: str
    first: Version
    last: Version
    sass: tuple[tuple[Version, Sass], ...]


def implied_sass(name: WheelName, *, official: bool) -> Sass:
    """The architectures, as nvcc numbers them (``("80", "90")``), or nothing where they are not known."""
    nvcc = _nvcc(name, official=official)
    version = Version(name.version)
    for build in _builds():
        if nvcc is not None and build.distribution == name.canonical and build.first <= version <= build.last:
            return next((sass for oldest, sass in build.sass if nvcc >= oldest), ())
    return ()


def _nvcc(name: WheelName, *, official: bool) -> Version | None:
    """The nvcc that built a wheel; a name that tells only the major version says it for official wheels."""
    cuda = name.built_for.cuda
    if "." not in cuda:
        cuda = read_table(_TABLE)["official_nvcc"].get(name.version, {}).get(cuda, "") if official else ""
    return Version(cuda) if cuda else None


@cache
def _builds() -> tuple[_Build, ...]:
    return tuple(
        _Build(
            row["distribution"],
            Version(row["first"]),
            Version(row["last"]),
            tuple(sorted(((Version(nvcc), tuple(sass)) for nvcc, sass in row["sass"].items()), reverse=True)),
        )
        for row in read_table(_TABLE)["build"]
    )


_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_URL = re.compile(r"(?:https?|file)://[!-~]{1,2000}", re.ASCII)
_LARGEST = 1 << 40
"""A terabyte: no wheel is larger, and a listing that says so is wrong."""


class PublishedFile(NamedTuple):
    """A file as a source lists it; ``size`` is 0 and ``sha256`` empty where it does not say."""

    name: str
    url: str
    size: int
    sha256: str


class Page(msgspec.Struct, frozen=True):
    """The wheels of FlashAttention on one page of a listing, and what was skipped because it makes no sense."""

    files: tuple[PublishedFile, ...]
    strange: tuple[str, ...]


def read_github_releases(document: Any) -> Page:
    """Read an answer of GitHub's "List releases"; :raises ValueError: when the document is not one.

    An asset has ``name``, ``size`` in bytes, ``browser_download_url`` and, since 2025, ``digest`` as ``sha256:...``.
    """
    return _page(_github_assets(document))


def read_huggingface_tree(document: Any, files: str) -> Page:
    """Read an answer of the Hugging Face Hub's tree of a repository, whose files are at ``files``.

    A file has ``path``, ``size`` in bytes and, where it is stored by LFS, ``lfs.oid``, which is its SHA-256.
    """
    return _page(_huggingface_files(document, files))


def files_of_index(rows: Iterable[tuple[str, str, int | None, str | None]]) -> Page:
    """Read the name, URL, size and SHA-256 of each file on the pages of a package index."""
    return _page((name, url.partition("#")[0], size or 0, sha256 or "") for name, url, size, sha256 in rows)


def to_wheels(files: Iterable[PublishedFile], *, source: str, official: bool) -> tuple[PublishedWheel, ...]:
    """The wheels that files are, each once, in an order that depends on nothing but them."""
    wheels: dict[tuple[str, str], tuple[Any, PublishedWheel]] = {}
    for file in files:
        name = WheelName.parse(filename_of_url(file.url))
        sass = implied_sass(name, official=official)
        wheel = PublishedWheel.of(name, source, url=file.url, size=file.size, sha256=file.sha256, seen=True, sass=sass)
        order = (name.canonical, Version(name.version), name.local, name.python, name.abi, name.platform, file.url)
        key = (file.url.partition("?")[0].rpartition("/")[0], str(name))
        tells = (bool(wheel.sha256), "%2B" in wheel.url)  # of two listings of one file the one that tells more
        if key not in wheels or tells > (bool(wheels[key][1].sha256), "%2B" in wheels[key][1].url):
            wheels[key] = (order, wheel)
    return tuple(wheel for _, wheel in sorted(wheels.values(), key=lambda pair: pair[0]))


def _github_assets(document: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    for release in _list(document, "releases"):
        if not isinstance(release, dict):
            raise ValueError("a release is not an object")  # noqa: TRY004  (the document is at fault, not a caller)
        for asset in _list(release.get("assets", []), "assets"):
            if not isinstance(asset, dict):
                yield None, None, None, None
                continue
            kind, _, digest = str(asset.get("digest") or "").partition(":")
            url = asset.get("browser_download_url")
            yield asset.get("name"), url, asset.get("size", 0), digest if kind == "sha256" else ""


def _huggingface_files(document: Any, files: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    for entry in _list(document, "files"):
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            yield None, None, None, None
        elif entry.get("type") == "file":
            path, lfs = entry["path"], entry.get("lfs")
            inside = not {"", ".", ".."} & set(path.split("/"))
            size, digest = (lfs.get("size"), lfs.get("oid")) if isinstance(lfs, dict) else (entry.get("size"), "")
            yield path.rpartition("/")[2], files + quote(path) if inside else None, size, digest


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"its {what} are not a list")  # noqa: TRY004  (the document is at fault, not a caller)
    return value


def _page(rows: Iterable[tuple[Any, Any, Any, Any]]) -> Page:
    """Keep what is a wheel of FlashAttention; what claims to be one and is not is named as strange."""
    files: list[PublishedFile] = []
    strange: list[str] = []
    for name, url, size, sha256 in rows:
        if not isinstance(name, str):
            strange.append("an entry without a name")
        elif name.endswith(".whl") and f"{canonical_name(name.partition('-')[0])}-".startswith("flash-attn-"):
            problem = _problem(name, url, size)
            if problem:
                strange.append(f"{name[:200]!a}: {problem}")
            else:
                known = isinstance(sha256, str) and _SHA256.fullmatch(sha256)
                files.append(PublishedFile(name, url, size, sha256 if known else ""))
    return Page(tuple(files), tuple(strange))


def _problem(name: str, url: Any, size: Any) -> str:
    try:
        WheelName.parse(name)
    except UsageError:
        return "this is not the name of a wheel"
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _LARGEST:
        return f"its size cannot be {str(size)[:40]}"
    if not isinstance(url, str) or not _URL.fullmatch(url):
        return "its URL is not one"
    with contextlib.suppress(ValueError):  # urllib's for an invalid address in brackets
        if filename_of_url(url) == name:
            return ""
    return "its URL leads to another name"
