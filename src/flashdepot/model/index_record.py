"""``flashdepot-index.json``: what an index of ours holds, with all that decides whether a wheel fits, in one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from flashdepot.model.codec import Table
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import Feature, Selection
from flashdepot.model.target import Architecture, Platform, Version

RECORD_NAME = "flashdepot-index.json"
RECORD_SCHEMA = 1
RECORD_KIND = "an index of flashdepot"

_FILENAME = re.compile(r"[A-Za-z0-9_.]+-[A-Za-z0-9_.+!]+(?:-[A-Za-z0-9_.]+){3,5}\.whl")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+/(?:[A-Za-z0-9._~%+,@:=-]+/)*", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_.]{1,16}")


class IndexedWheel(msgspec.Struct, frozen=True):
    """One wheel of an index: its file, and what its manifest says of the library in it.

    ``size`` is in bytes, ``uploaded`` the time in UTC at which the index had it first (PEP 700). ``version`` is that of
    the package, ``upstream`` that of its source. ``label`` is that of a variant (PEP 825), empty for a plain wheel.
    ``units`` and ``features`` are what the library can do, ``tools`` what compiled it, ``signers`` the names of the
    keys that have signed its manifest.
    """

    filename: str
    sha256: str
    size: int
    uploaded: str
    metadata_sha256: str
    version: str
    upstream: str
    label: str
    platform: Platform
    libc_floor: Version | None
    driver_floor: Version
    cuda: Version
    sass: tuple[Architecture, ...]
    families: tuple[str, ...]
    units: frozenset[str]
    features: frozenset[Feature]
    recipe_key: str
    manifest_sha256: str
    tools: tuple[str, ...]
    flashdepot: str
    signers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        *,
        filename: str,
        version: str,
        label: str,
        sha256: str,
        size: int,
        uploaded: str,
        metadata_sha256: str,
        manifest_sha256: str,
    ) -> IndexedWheel:
        """A wheel over the library of a manifest."""
        return cls(
            filename=filename,
            sha256=sha256,
            size=size,
            uploaded=uploaded,
            metadata_sha256=metadata_sha256,
            version=version,
            upstream=manifest.upstream.version,
            label=label,
            platform=manifest.platform,
            libc_floor=manifest.libc_floor,
            driver_floor=manifest.driver_floor,
            cuda=manifest.toolchain.cuda,
            sass=manifest.sass,
            families=manifest.selection.families,
            units=frozenset(map(str, manifest.selection.units)),
            features=manifest.selection.features,
            recipe_key=manifest.recipe_key,
            manifest_sha256=manifest_sha256,
            tools=tuple(dict.fromkeys(f"{tool.name} {tool.version}" for tool in manifest.toolchain.tools)),
            flashdepot=manifest.flashdepot,
        )

    def covers(self, wanted: Selection) -> bool:
        """Whether its library can do everything that one of ``wanted`` can."""
        return self.units >= {*map(str, wanted.units)} and self.features >= wanted.features

    def to_json(self) -> dict[str, Any]:
        """All fields; what is empty is left out."""
        fields = {
            "filename": self.filename,
            "sha256": self.sha256,
            "size": self.size,
            "uploaded": self.uploaded,
            "metadata_sha256": self.metadata_sha256,
            "version": self.version,
            "upstream": self.upstream,
            "label": self.label,
            "platform": str(self.platform),
            "libc_floor": str(self.libc_floor) if self.libc_floor else "",
            "driver_floor": str(self.driver_floor),
            "cuda": str(self.cuda),
            "sass": [str(architecture) for architecture in self.sass],
            "families": list(self.families),
            "units": sorted(self.units),
            "features": sorted(feature.value for feature in self.features),
            "recipe_key": self.recipe_key,
            "manifest_sha256": self.manifest_sha256,
            "tools": list(self.tools),
            "flashdepot": self.flashdepot,
            "signers": list(self.signers),
        }
        return {name: value for name, value in fields.items() if value not in ("", [])}

    @classmethod
    def read(cls, row: Table) -> IndexedWheel:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a value that is missing or cannot be."""
        return cls(
            filename=row.match("filename", _FILENAME, "the name of a wheel"),
            sha256=row.digest("sha256"),
            size=row.natural("size", default=0),
            uploaded=row.match("uploaded", _TIME, "a time such as 2026-11-22T01:00:00.000000Z"),
            metadata_sha256=row.digest("metadata_sha256"),
            version=row.take("version", str),
            upstream=row.take("upstream", str),
            label=row.match("label", _LABEL, "the label of a variant", default=""),
            platform=row.convert("platform", Platform.parse),
            libc_floor=row.convert("libc_floor", Version.parse) if "libc_floor" in row else None,
            driver_floor=row.convert("driver_floor", Version.parse),
            cuda=row.convert("cuda", Version.parse),
            sass=row.convert_all("sass", Architecture.parse),
            families=row.texts("families"),
            units=frozenset(row.texts("units")),
            features=frozenset(row.convert_all("features", Feature)) if "features" in row else frozenset(),
            recipe_key=row.digest("recipe_key"),
            manifest_sha256=row.digest("manifest_sha256"),
            tools=row.texts("tools"),
            flashdepot=row.take("flashdepot", str),
            signers=row.texts("signers") if "signers" in row else (),
        )


class IndexRecord(msgspec.Struct, frozen=True):
    """All wheels of an index, and the address that it is served under, empty where nobody has said it.

    The address is copied into commands and shells, so it is one that stands for itself there.
    """

    wheels: tuple[IndexedWheel, ...]
    url: str = ""

    def __post_init__(self) -> None:
        """:raises ValueError: for an address that is none of a folder on the web, or that a shell reads as more."""
        if self.url and _ADDRESS.fullmatch(self.url) is None:
            raise ValueError(f"'{self.url[:100]}' is not the address of a folder on the web: expected https://.../")

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return {
            "schema": RECORD_SCHEMA,
            "kind": RECORD_KIND,
            "url": self.url,
            "wheels": [wheel.to_json() for wheel in self.wheels],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndexRecord:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for another kind of document or schema, and for a value that is missing or cannot be.
        """
        document = Table(data)
        if document.get("kind") != RECORD_KIND:
            raise ValueError(f"it is not {RECORD_KIND}")
        if (schema := document.take("schema", int)) != RECORD_SCHEMA:
            raise ValueError(f"its schema is {schema}, and this flashdepot reads {RECORD_SCHEMA}")
        return cls(tuple(map(IndexedWheel.read, document.tables("wheels"))), document.take("url", str))
