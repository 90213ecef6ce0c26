"""What an artifact is, what it can do and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from flashdepot.errors import GET_NEWER, IntegrityError, NewerError
from flashdepot.model.codec import Digest, Natural, UnknownWordError, is_digest, plain, read_document
from flashdepot.model.recipe import HOST_COMPILERS, ToolchainId, UpstreamId, leading
from flashdepot.model.selection import Selection
from flashdepot.model.target import Architecture, Platform, Version

MANIFEST_SCHEMA = 3
MANIFEST_NAME = "manifest.json"
LIBRARY = "library"
"""The kind of artifact that holds kernels; the ``kind`` of its manifest."""


class ManifestFile(msgspec.Struct, frozen=True):
    """One file of an artifact: its place (with ``/``), its SHA-256 and its size in bytes, or where it links to."""

    path: str
    digest: str = ""
    size: Natural = 0
    link: str = ""

    def __post_init__(self) -> None:
        """:raises ValueError: for a place outside the artifact's folder, or a regular file without a digest."""
        if not _is_place(self.path):
            raise ValueError(f"{self.path!r} is not a place inside an artifact")
        if self.link and ("/" in self.link or not _is_place(self.link)):
            raise ValueError(f"{self.link!r} is not a name in the same folder")
        if bool(self.link) == is_digest(self.digest):
            raise ValueError(f"{self.path} has the digest {self.digest!r}, expected a SHA-256, and for a link none")

    def to_json(self) -> dict[str, Any]:
        """A regular file has ``digest`` and ``size``, a symbolic link has ``link``."""
        if self.link:
            return {"path": self.path, "link": self.link}
        return {"path": self.path, "digest": self.digest, "size": self.size}


def _is_place(text: str) -> bool:
    """Whether a text is a relative path as every system understands it, spelled in the one way there is."""
    proper = all(part not in {"", ".", ".."} for part in text.split("/"))
    return proper and text.isprintable() and "\\" not in text and ":" not in text


def _require_apart(files: Sequence[ManifestFile]) -> None:
    """:raises ValueError: when two files have one place, or a file is where another one needs a folder."""
    places = [file.path for file in files]
    folders = {place.rpartition("/")[0] for place in places}
    parents = {parent for folder in folders for parent in accumulate(folder.split("/"), "{}/{}".format)}
    if len({*places, MANIFEST_NAME}) != len(places) + 1 or parents & {*places, MANIFEST_NAME}:
        raise ValueError("two of its files have the same place")


class Manifest(msgspec.Struct, frozen=True):
    """The record that travels with an artifact. It has no time in it: one recipe gives the same bytes everywhere.

    ``upstreams`` and ``flags`` are those of each family in it, by its name. ``untested_gpus`` has those GPUs, by the name of a
    family, that it has code for and has been tested on none of; calls there do not choose it. ``libc_floor`` is the oldest
    GNU C library its shared library loads on, ``driver_floor`` the oldest NVIDIA driver. ``c_layer`` is the digest of
    flashdepot's own sources in it. ``actions`` maps each compiled file to its action key.
    """

    recipe_key: Digest
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
    front_end: str
    flags: Mapping[str, tuple[str, ...]]
    files: tuple[ManifestFile, ...]
    actions: Mapping[str, str]
    flashdepot: str
    untested_gpus: Mapping[str, tuple[Architecture, ...]] = msgspec.field(default_factory=dict, name="unproven")

    def __repr__(self) -> str:
        return f"<Manifest of flash-attn {self.upstream}, {self.platform}, {', '.join(gpu.sm for gpu in self.sass)}>"

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives the artifact its version."""
        return leading(self.upstreams)

    @property
    def sources(self) -> dict[str, str]:
        """The names of the sources that it was made from, as long as they are published ones."""
        return {family: upstream.version for family, upstream in self.upstreams.items()}

    @property
    def untested(self) -> str:
        """What is untested in it, as :func:`untested_of` says it."""
        return untested_of(self.untested_gpus)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first; the same text whether it was just made or read."""
        row = plain(self)
        row |= {"schema": MANIFEST_SCHEMA, "cuda": str(self.toolchain.cuda), "toolchain": self.toolchain.to_json()}
        row |= {"selection": self.selection.to_json(), "files": [f.to_json() for f in self.files]}
        row["libstdcxx_floor"] = None  # the shared library holds its own; the key is part of what was signed
        return {name: row[name] for name in _KEYS if name != "unproven" or self.untested_gpus}

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Read what :meth:`to_json` wrote; :raises ValueError: for another schema, or a value that is missing or cannot be."""
        manifest = read_document(data, cls, MANIFEST_SCHEMA)
        _require_apart(manifest.files)
        toolchain = manifest.toolchain
        if (cuda := data.get("cuda")) != toolchain.cuda.text:
            raise ValueError(f"cuda is {cuda!r}: expected the toolchain's, {toolchain.cuda}")
        if not any(tool.name in HOST_COMPILERS for tool in toolchain.tools):
            raise ValueError(
                f"toolchain.tools has no host compiler: expected one of {', '.join(sorted(HOST_COMPILERS))}"
            )
        if not manifest.upstreams or not set(manifest.selection.families) <= manifest.upstreams.keys():
            raise ValueError(f"upstreams is {sorted(manifest.upstreams)}: expected the source of each family")
        return manifest


_KEYS = (
    "schema", "kind", "name", "recipe_key", "upstreams", "selection", "platform", "sass", "cuda", "c_layer",
    "driver_floor", "libc_floor", "libstdcxx_floor", "toolchain", "front_end", "flags", "unproven", "files", "actions",
    "flashdepot",
)  # fmt: skip
"""In the order of the text that is signed."""


def unusable(name: object, error: Exception, hint: str = "") -> IntegrityError:
    """What to raise for a manifest that :meth:`Manifest.from_json` refuses: ``hint`` is for one that no newer release wrote."""
    if isinstance(error, UnknownWordError):
        return NewerError(
            f"{name} was written by a newer flashdepot: {error}.", hint=f"Use that release here too: {GET_NEWER}"
        )
    return IntegrityError(f"{name} cannot be used: {error}.", hint=hint)


def untested_of(gpus: Mapping[str, Sequence[Architecture]]) -> str:
    """``fa4 on 10.0, 12.0``: GPUs by family, as text; empty for none."""
    return "; ".join(f"{family} on {', '.join(gpu.dotted for gpu in codes)}" for family, codes in sorted(gpus.items()))
