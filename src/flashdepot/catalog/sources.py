"""Where wheels are published: the sources that ship with the catalog, and those that a user adds."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.facts import read_table
from flashdepot.system.files import disk_errors, read_json, write_json

_SHIPPED = Path(__file__).parent / "sources.toml"
_OWN = "sources.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}", re.ASCII)
_KINDS = ("official", "community")


class Format(str, Enum):
    """How a source lists its files."""

    GITHUB = "github-releases"
    HUGGINGFACE = "huggingface-tree"
    INDEX = "simple-index"


class Source(msgspec.Struct, frozen=True):
    """A collection of wheels and where it is listed.

    ``files`` is what the URLs of its files begin with, empty where the listing gives them whole.
    """

    name: str
    kind: str
    format: Format
    listing: str
    files: str
    page: str
    licence: str

    @classmethod
    def from_json(cls, data: Any) -> Source:
        """Read a row of ``sources.toml`` or ``sources.json``.

        :raises ValueError: when a field is missing or is nothing that it may be.
        """
        try:
            source = cls(**{**data, "format": Format(data["format"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"it is not a source ({error})") from error
        if not all(isinstance(value, str) for value in asdict(source).values()):
            raise ValueError("a field is not a text")
        if not _NAME.fullmatch(source.name):
            raise ValueError(f"'{source.name}' is not a name: lower-case letters, digits, dots and hyphens")
        if source.kind not in _KINDS:
            raise ValueError(f"the kind '{source.kind}' is none of {', '.join(_KINDS)}")
        if not source.listing.startswith(("https://", "http://", "file://")):
            raise ValueError(f"the listing '{source.listing}' is not a URL")
        if not source.page.startswith(("https://", "http://", "file://")):
            raise ValueError(f"the page '{source.page}' is not a URL")
        return source

    @classmethod
    def index(cls, url: str) -> Source:
        """A package index that a user names; ``NAME=URL`` gives it a name, else it takes that of its server.

        :raises UsageError: when it is not a URL, has credentials in it, or would take the place of a shipped source.
        """
        from urllib.parse import urlsplit  # noqa: PLC0415

        name, equals, address = url.partition("=")
        if not equals or "/" in name:
            name, address = "", url
        try:
            parts = urlsplit(address)
        except ValueError as error:
            raise UsageError(
                f"'{url}' is not a URL: {error}.", hint="Name one: --index https://example.org/simple/"
            ) from error
        if "@" in parts.netloc:
            raise UsageError(
                "The URL of the index has a user or a password in it, and sources are kept as plain text.",
                hint="Put them into ~/.netrc, and name the index without them.",
            )
        if name in {source.name for source in _read_shipped()}:
            raise UsageError(
                f"'{name}' is a source already, and an index cannot take its place.",
                hint="Give the index another name: flashdepot catalog update --index NAME=URL",
            )
        name = name or re.sub(r"[^a-z0-9.-]+", "-", (parts.hostname or "local").lower())
        try:
            return cls.from_json(
                {
                    "name": name,
                    "kind": "community",
                    "format": Format.INDEX.value,
                    "listing": address,
                    "files": "",
                    "page": address,
                    "licence": "",
                }
            )
        except ValueError as error:
            raise UsageError(
                f"'{url}' is not a package index: {error}.",
                hint="Name one: flashdepot catalog update --index NAME=https://example.org/simple/",
            ) from error


def read_sources(folder: Path) -> tuple[Source, ...]:
    """The shipped sources and the user's own, which are kept in ``folder``; one of the same name takes its place.

    :raises UsageError: when the user's file is not what it should be.
    """
    return tuple({source.name: source for source in (*_read_shipped(), *_read_own(folder))}.values())


def remember(folder: Path, source: Source) -> None:
    """Keep a source among the user's own, in place of one of the same name.

    :raises UsageError: when the user's file is not what it should be.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    own = {known.name: known for known in _read_own(folder)} | {source.name: source}
    with disk_errors(folder):
        write_json(folder / _OWN, {"source": [asdict(known) for known in own.values()]})


def _read_shipped() -> list[Source]:
    return [Source.from_json(row) for row in read_table(_SHIPPED)["source"]]


def _read_own(folder: Path) -> list[Source]:
    path = folder / _OWN
    try:
        return [Source.from_json(row) for row in read_json(path)["source"]]
    except FileNotFoundError:
        return []
    except (IntegrityError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path} is not a list of sources: {error}.",
            hint="Fix it, or remove it and name your indexes again: flashdepot catalog update --index URL",
        ) from error
