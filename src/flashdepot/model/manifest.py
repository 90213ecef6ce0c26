"""What an artifact is, what it can do and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from flashdepot.model.codec import Table
from flashdepot.model.recipe import ToolchainId, UpstreamId, leading
from flashdepot.model.selection import Selection
from flashdepot.model.target import Architecture, Platform, Version

MANIFEST_SCHEMA = 3
MANIFEST_NAME = "manifest.json"
LIBRARY = "library"
"""The kind of artifact that holds kernels; the ``kind`` of its manifest."""


class ManifestFile(msgspec.Struct, frozen=True):
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
    def read(cls, row: Table) -> ManifestFile:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a place outside the artifact's folder."""
        path = row.take("path", str)
        if not _is_place(path):
            raise row.wrong("path", "a place inside an artifact")
        if "link" not in row:
            return cls(path, row.digest("digest"), row.natural("size", default=-1))
        link = row.take("link", str)
        if "/" in link or not _is_place(link):
            raise row.wrong("link", "a name in the same folder")
        return cls(path, "", 0, link)


def _is_place(text: str) -> bool:
    """Whether a text is a relative path as every system understands it, spelled in the one way there is."""
    path = PurePosixPath(text)
    foreign = any(character in "\\:" or not character.isprintable() for character in text)
    return bool(path.parts) and str(path) == text and ".." not in path.parts and not path.is_absolute() and not foreign


def _require_apart(files: Sequence[ManifestFile]) -> None:
    """:raises ValueError: when two files have one place, or a file lies where another one needs a folder."""
    places = [file.path for file in files]
    parents = {str(parent) for place in places for parent in PurePosixPath(place).parents}
    if len({*places, MANIFEST_NAME}) != len(places) + 1 or parents & {*places, MANIFEST_NAME}:
        raise ValueError("two of its files have the same place")


class Manifest(msgspec.Struct, frozen=True):
    """The record that travels with an artifact. It has no time in it: one recipe gives the same bytes everywhere.

    ``upstreams`` and ``flags`` are those of each family in it, by its name. ``unproven`` has those GPUs, by the name of a
    family, that it has code for and has been proven on none of; calls there do not choose it. ``libc_floor`` is the oldest GNU C library its shared library loads on, ``driver_floor`` the oldest NVIDIA driver.
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
    flashdepot: str
    unproven: Mapping[str, tuple[Architecture, ...]] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Manifest of flash-attn {self.upstream}, {self.platform}, {', '.join(gpu.sm for gpu in self.sass)}>"

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives the artifact its version."""
        return leading(self.upstreams)

    @property
    def doubts(self) -> str:
        """What is unproven in it, as :func:`doubts_of` says it."""
        return doubts_of(self.unproven)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first; the same text whether it was just made or read."""
        unproven = {family: [str(a) for a in gpus] for family, gpus in sorted(self.unproven.items())}
        return {
            "schema": MANIFEST_SCHEMA,
            "kind": self.kind,
            "name": self.name,
            "recipe_key": self.recipe_key,
            "upstreams": {name: upstream.to_json() for name, upstream in sorted(self.upstreams.items())},
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
            "flags": {name: list(flags) for name, flags in sorted(self.flags.items())},
            **({"unproven": unproven} if unproven else {}),
            "files": [f.to_json() for f in self.files],
            "actions": dict(sorted(self.actions.items())),
            "flashdepot": self.flashdepot,
        }

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for another schema, a missing field, or a value that cannot be.
        """
        record = Table(data)
        if (schema := record.take("schema", int)) != MANIFEST_SCHEMA:
            raise ValueError(f"manifest schema {schema}: this flashdepot reads {MANIFEST_SCHEMA}")
        toolchain = ToolchainId.read(record.table("toolchain"))
        if record.take("cuda", str) != toolchain.cuda.text:
            raise record.wrong("cuda", f"the toolchain's, {toolchain.cuda}")
        files = tuple(map(ManifestFile.read, record.tables("files")))
        _require_apart(files)
        upstreams = {name: UpstreamId.read(row) for name, row in record.tables_by_name("upstreams").items()}
        selection = Selection.read(record.table("selection"))
        if not upstreams or not set(selection.families) <= upstreams.keys():
            raise record.wrong("upstreams", "the source of each family")
        return cls(
            recipe_key=record.digest("recipe_key"),
            kind=record.take("kind", str),
            name=record.take("name", str),
            upstreams=upstreams,
            selection=selection,
            platform=record.convert("platform", Platform.parse),
            sass=record.convert_all("sass", Architecture.parse),
            toolchain=toolchain,
            c_layer=record.take("c_layer", str),
            driver_floor=record.convert("driver_floor", Version.parse),
            libc_floor=_version(record, "libc_floor"),
            libstdcxx_floor=_version(record, "libstdcxx_floor"),
            front_end=record.take("front_end", str),
            flags=record.texts_by_name("flags"),
            files=files,
            actions=record.text_by_name("actions"),
            flashdepot=record.take("flashdepot", str),
            unproven=_unproven(record) if "unproven" in record else {},
        )


def _unproven(record: Table) -> dict[str, tuple[Architecture, ...]]:
    rows = record.table("unproven")
    return {family: rows.convert_all(family, Architecture.parse) for family in record.take("unproven", dict)}


def doubts_of(unproven: Mapping[str, Sequence[Architecture]]) -> str:
    """``fa4 on 10.0, 12.0``: GPUs by family, in words; empty for none."""
    return "; ".join(
        f"{family} on {', '.join(gpu.dotted for gpu in gpus)}" for family, gpus in sorted(unproven.items())
    )


def _version(record: Table, key: str) -> Version | None:
    return None if record.get(key) is None else record.convert(key, Version.parse)
