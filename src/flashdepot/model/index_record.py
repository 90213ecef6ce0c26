"""``flashdepot-index.json``: what our index holds, with all that decides whether a wheel fits, in one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from flashdepot.model.codec import Digest, Natural, plain, read_document
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import Feature
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import canonical_name

RECORD_NAME = "flashdepot-index.json"
RECORD_SCHEMA = 1
RECORD_KIND = "an index of flashdepot"

_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+/(?:[A-Za-z0-9._~%+,@:=-]+/)*", re.ASCII)
_Filename = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.]+-[A-Za-z0-9_.+!]+(?:-[A-Za-z0-9_.]+){3,4}\.whl\Z")]
_Time = Annotated[str, msgspec.Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")]


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a wheel of an index: one without a library, such as flash-attn-3's, or the begin of one that has it.

    ``size`` is in bytes, ``uploaded`` the time in UTC at which the index had it first (PEP 700), ``version`` that of the
    package.
    """

    filename: _Filename
    sha256: Digest
    size: Natural = 0
    uploaded: _Time
    metadata_sha256: Digest
    version: str

    @property
    def distribution(self) -> str:
        """``flash-attn`` or another name, as an index spells it (PEP 503)."""
        return canonical_name(self.filename.partition("-")[0])

    def to_json(self) -> dict[str, Any]:
        """All fields; what is empty is left out."""
        return {name: value for name, value in plain(self).items() if value not in (None, "", [])}


class IndexedWheel(IndexedFile, frozen=True, kw_only=True):
    """One wheel of an index: its file, and what its manifest says of the library in it.

    ``upstream`` is the version of its source, ``units`` and ``features`` are what the library can do, ``tools`` what
    compiled it.
    """

    upstream: str
    platform: Platform
    libc_floor: Version | None = None
    driver_floor: Version
    cuda: Version
    sass: tuple[Architecture, ...]
    families: tuple[str, ...]
    units: frozenset[str]
    features: frozenset[Feature] = frozenset()
    recipe_key: Digest
    manifest_sha256: Digest
    tools: tuple[str, ...]
    flashdepot: str

    @classmethod
    def of(cls, manifest: Manifest, **of_file: Any) -> IndexedWheel:
        """A wheel over the library of a manifest; the fields that it does not say are given."""
        return cls(
            upstream=manifest.upstream.version,
            platform=manifest.platform,
            libc_floor=manifest.libc_floor,
            driver_floor=manifest.driver_floor,
            cuda=manifest.toolchain.cuda,
            sass=manifest.sass,
            families=manifest.selection.families,
            units=frozenset(map(str, manifest.selection.units)),
            features=manifest.selection.features,
            recipe_key=manifest.recipe_key,
            tools=tuple(dict.fromkeys(f"{tool.name} {tool.version}" for tool in manifest.toolchain.tools)),
            flashdepot=manifest.flashdepot,
            **of_file,
        )


class IndexRecord(msgspec.Struct, frozen=True):
    """All wheels of an index, and the address that it is served under, empty where nobody has said it.

    ``names`` are the wheels that hold no library, and need one of flash-attn's.

    The address is copied into commands and shells, so it is one that stands for itself there.
    """

    wheels: tuple[IndexedWheel, ...]
    url: str = ""
    names: tuple[IndexedFile, ...] = ()

    def __post_init__(self) -> None:
        """:raises ValueError: for an address that is not a folder on the web, or that a shell would change."""
        if self.url and _ADDRESS.fullmatch(self.url) is None:
            raise ValueError(f"'{self.url[:100]}' is not the address of a folder on the web: expected https://.../")

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return {
            "schema": RECORD_SCHEMA,
            "kind": RECORD_KIND,
            "url": self.url,
            "wheels": [wheel.to_json() for wheel in self.wheels],
            **({"names": [file.to_json() for file in self.names]} if self.names else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndexRecord:
        """Read what :meth:`to_json` wrote; :raises ValueError: for another document, or a value that cannot be."""
        return read_document(data, cls, RECORD_SCHEMA, RECORD_KIND)
