"""What an artifact is, what it can do and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from flashdepot.model.architecture import Architecture
from flashdepot.model.recipe import ToolchainId
from flashdepot.model.selection import Selection
from flashdepot.model.target import Platform, Version
from flashdepot.model.upstream import UpstreamId, leading

MANIFEST_SCHEMA = 2
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True)
class ManifestFile:
    """One file of an artifact: its place (with ``/``), its SHA-256 and its size in bytes, or where it links to."""

    path: str
    digest: str
    size: int
    link: str = ""

    def to_json(self) -> dict[str, Any]:
        """A regular file has ``digest`` and ``size``, a symbolic link has ``link``."""
        if self.link:
            return {"path": self.path, "link": self.link}
        return {"path": self.path, "digest": self.digest, "size": self.size}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ManifestFile:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a place outside the artifact's folder."""
        path = PurePosixPath(data["path"])
        link = data.get("link", "")
        if path.is_absolute() or ".." in path.parts or "/" in link or "\\" in str(path) or link in {".", ".."}:
            raise ValueError(f"'{data['path']}' is not a place inside an artifact")
        if link:
            return cls(str(path), "", 0, link)
        return cls(str(path), data["digest"], data["size"])


@dataclass(frozen=True)
class Manifest:
    """The record that travels with an artifact.

    ``upstreams`` and ``flags`` are those of each family in it, by its name. ``libc_floor`` is the oldest GNU C library its shared library loads on, ``driver_floor`` the oldest NVIDIA driver.
    ``c_layer`` is the digest of flashdepot's own sources in it. ``libstdcxx_floor`` is empty because the shared library holds its own. ``actions`` maps each compiled file to its
    action key.
    """

    recipe_key: str
    kind: str
    name: str
    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    platform: Platform
    sass: tuple[Architecture, ...]
    toolchain: ToolchainId
    c_layer: str
    driver_floor: Version
    libc_floor: Version | None
    libstdcxx_floor: Version | None
    front_end: str
    flags: Mapping[str, tuple[str, ...]]
    files: tuple[ManifestFile, ...]
    actions: Mapping[str, str]
    created: str
    flashdepot: str

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives the artifact its version."""
        return leading(self.upstreams)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first."""
        return {
            "schema": MANIFEST_SCHEMA,
            "kind": self.kind,
            "name": self.name,
            "recipe_key": self.recipe_key,
            "upstreams": {name: upstream.to_json() for name, upstream in self.upstreams.items()},
            "selection": self.selection.to_json(),
            "platform": str(self.platform),
            "sass": [str(a) for a in self.sass],
            "cuda": str(self.toolchain.cuda),
            "c_layer": self.c_layer,
            "driver_floor": str(self.driver_floor),
            "libc_floor": str(self.libc_floor) if self.libc_floor else None,
            "libstdcxx_floor": str(self.libstdcxx_floor) if self.libstdcxx_floor else None,
            "toolchain": self.toolchain.to_json(),
            "front_end": self.front_end,
            "flags": {name: list(flags) for name, flags in self.flags.items()},
            "files": [f.to_json() for f in self.files],
            "actions": dict(self.actions),
            "created": self.created,
            "flashdepot": self.flashdepot,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for another schema, a missing field, or a value that cannot be.
        """
        if data.get("schema") != MANIFEST_SCHEMA:
            raise ValueError(f"manifest schema {data.get('schema')!r}: this flashdepot reads {MANIFEST_SCHEMA}")
        try:
            return cls(
                recipe_key=data["recipe_key"],
                kind=data["kind"],
                name=data["name"],
                upstreams={name: UpstreamId.from_json(u) for name, u in data["upstreams"].items()},
                selection=Selection.from_json(data["selection"]),
                platform=Platform.parse(data["platform"]),
                sass=tuple(Architecture.parse(a) for a in data["sass"]),
                toolchain=ToolchainId.from_json(data["toolchain"]),
                c_layer=data["c_layer"],
                driver_floor=Version.parse(data["driver_floor"]),
                libc_floor=_version(data["libc_floor"]),
                libstdcxx_floor=_version(data["libstdcxx_floor"]),
                front_end=data["front_end"],
                flags={name: tuple(flags) for name, flags in data["flags"].items()},
                files=tuple(ManifestFile.from_json(f) for f in data["files"]),
                actions=dict(data["actions"]),
                created=data["created"],
                flashdepot=data["flashdepot"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"manifest field missing or of the wrong type: {error}") from error


def _version(text: str | None) -> Version | None:
    return Version.parse(text) if text else None
