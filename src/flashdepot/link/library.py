"""A library's folder, read so that others can link it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.binary.window import LFS_MAGIC
from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.files.atomic import read_json
from flashdepot.model.codec import FixedWord
from flashdepot.model.manifest import LIBRARY, MANIFEST_NAME, Manifest, ManifestFile, unusable
from flashdepot.model.target import LibraryNames, Platform, names_of, spell

_GET_AGAIN = "Get it again: flashdepot get --out DIR"


class LinkKind(FixedWord):
    """Which of the two libraries of a folder is linked."""

    SHARED = "shared"
    STATIC = "static"


class LinkableLibrary(msgspec.Struct, frozen=True):
    """A folder as ``flashdepot get`` writes it, by its absolute path, and its manifest."""

    root: Path
    manifest: Manifest

    def required_for(self, target: Platform | None) -> LinkableLibrary:
        """The library itself; :raises IncompatibleError: when it is for another system or CPU than the one that was named."""
        if target is None or self.manifest.platform == target:
            return self
        raise IncompatibleError(
            f"The library in {self.root} is for {self.manifest.platform}, and --target says {target}.",
            hint=f"Get one for it: flashdepot get --target {target} --out DIR",
        )

    @property
    def include(self) -> Path:
        """The folder of ``flash_attention.h``."""
        return self.root / "include"

    @property
    def pkg_config(self) -> Path:
        """The folder of the ``.pc`` files."""
        return self.root / "lib" / "pkgconfig"

    @property
    def names(self) -> LibraryNames:
        """What its files are called; :raises IncompatibleError: when it is for a system that no names are known of."""
        return names_of(self.manifest.platform.system)

    def folder(self, kind: LinkKind) -> Path:
        """The folder of one of the two libraries, in which the other one is not."""
        return self.root / "lib" / kind.value

    def require(self, kind: LinkKind) -> None:
        """Check that a linker finds the library, and a program the shared one, and not a stand-in."""
        names = self.names
        shared, static = (names.shared_linked, names.shared), names.static[:1]
        for name in shared if kind is LinkKind.SHARED else static:
            _require_library(self.folder(kind) / name)

    def source(self, file: ManifestFile) -> Path:
        """Where the bytes of a file of the manifest are."""
        return self.root / file.path

    def summary(self) -> str:
        """What it can do, in one line."""
        return (
            f"flash-attn {self.manifest.upstream}: {self.manifest.selection}; "
            f"machine code for {spell(self.manifest.sass)}"
        )

    def to_json(self) -> dict[str, Any]:
        """What scripts ask first."""
        return {
            "path": str(self.root),
            "manifest": str(self.root / MANIFEST_NAME),
            "recipe_key": self.manifest.recipe_key,
            "upstream": self.manifest.upstream.version,
            "platform": str(self.manifest.platform),
            "sass": [str(a) for a in self.manifest.sass],
        }


def _require_library(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(LFS_MAGIC))
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error.strerror}.", hint=_GET_AGAIN) from error
    if head == LFS_MAGIC:
        fetch = "Fetch the file: git lfs install && git lfs pull"
        raise IntegrityError(f"{path} is a Git LFS pointer, not a library; no linker can use it.", hint=fetch)
    if not head:
        raise IntegrityError(f"{path} is empty, and some linkers say nothing of it.", hint=_GET_AGAIN)


def read_library(folder: Path) -> LinkableLibrary:
    """Read the manifest of a library's folder; its other files are not read."""
    root = Path(os.path.abspath(folder))  # noqa: PTH100  (the path as typed, through whatever links)
    return LinkableLibrary(root, read_manifest(root))


def read_manifest(root: Path) -> Manifest:
    """The manifest in a library's folder."""
    path = root / MANIFEST_NAME
    try:
        data = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{root} is not a library that flashdepot wrote: it has no {MANIFEST_NAME}.",
            hint="Name the folder that 'flashdepot get' printed, or make one: flashdepot get --out DIR",
        ) from None
    except IntegrityError as error:
        raise IntegrityError(error.message, hint=_GET_AGAIN) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a folder that you may read."
        ) from error
    if not isinstance(data, dict) or data.get("kind") != LIBRARY:
        raise UsageError(
            f"{path} is not the manifest of a library.", hint="Name the folder that 'flashdepot get' printed."
        )
    try:
        return Manifest.from_json(data)
    except ValueError as error:
        raise unusable(path, error, _GET_AGAIN) from error
