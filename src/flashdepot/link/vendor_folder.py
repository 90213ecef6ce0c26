"""A folder of vendored libraries: ``vendor.json``, which lists them, and putting one more there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from flashdepot.depot.export import export
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.atomic import read_json
from flashdepot.files.user_files import require_no_links, rewrite_file
from flashdepot.link.vendor_files import attribute_lines, examine_files, examine_manifest, is_disguised, with_lines
from flashdepot.model.codec import is_digest, plain, read
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.target import Architecture, Platform, Version

INDEX_NAME = "vendor.json"
INDEX_KIND = "vendored libraries"
INDEX_SCHEMA = 1


class VendoredTarget(msgspec.Struct, frozen=True):
    """One library: its folder next to the index, the SHA-256 of its manifest, and what it is for."""

    folder: str
    manifest_digest: str = msgspec.field(name="manifest")
    recipe_key: str
    upstream: str
    platform: Platform
    cuda: Version
    sass: tuple[Architecture, ...]

    def __post_init__(self) -> None:
        if self.folder in {"", ".", ".."} or any(character in self.folder for character in "/\\:\0"):
            raise ValueError(f"'{self.folder}' is not the name of a folder next to it")
        if not is_digest(self.manifest_digest):
            raise ValueError(f"'{self.manifest_digest}' is not a SHA-256")

    @classmethod
    def of(cls, manifest: Manifest, manifest_digest: str) -> VendoredTarget:
        """The entry of a library."""
        return cls(
            folder=target_folder(manifest),
            manifest_digest=manifest_digest,
            recipe_key=manifest.recipe_key,
            upstream=manifest.upstream.version,
            platform=manifest.platform,
            cuda=manifest.toolchain.cuda,
            sass=manifest.sass,
        )


class VendorIndex(msgspec.Struct, frozen=True):
    """The targets of a folder, by the name of their own."""

    targets: tuple[VendoredTarget, ...] = ()

    def with_target(self, target: VendoredTarget) -> VendorIndex:
        """This index with a target added, or in place of the one in the same folder."""
        others = (t for t in self.targets if t.folder != target.folder)
        return VendorIndex(tuple(sorted((*others, target), key=lambda t: t.folder)))

    def text(self) -> bytes:
        """The file's bytes, for people and version control to read."""
        document = {"schema": INDEX_SCHEMA, "kind": INDEX_KIND, "targets": plain(self.targets)}
        return (json.dumps(document, indent=2) + "\n").encode()


def read_index(directory: Path) -> VendorIndex | None:
    """The index of a folder, ``None`` where there is none."""
    path = directory / INDEX_NAME
    hint = f"Restore it from version control, or remove it and write it again: flashdepot vendor {directory}"
    try:
        data = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a folder that you may read."
        ) from error
    except IntegrityError as error:
        raise IntegrityError(error.message, hint=hint) from error
    if not isinstance(data, dict) or data.get("kind") != INDEX_KIND:
        raise UsageError(
            f"{path} was not written by flashdepot: it does not say that it is of {INDEX_KIND}.",
            hint="Name another folder: flashdepot vendor DIR",
        )
    if data.get("schema") != INDEX_SCHEMA:
        raise IntegrityError(
            f"{path} has schema {data.get('schema')!r}; this flashdepot reads {INDEX_SCHEMA}.", hint=hint
        )
    try:
        targets = read(data.get("targets"), tuple[VendoredTarget, ...])
    except ValueError as error:
        raise IntegrityError(f"{path} cannot be used: {error}.", hint=hint) from error
    if len({target.folder for target in targets}) != len(targets):
        raise IntegrityError(f"{path} cannot be used: it names a folder twice.", hint=hint)
    return VendorIndex(targets)


def target_folder(manifest: Manifest) -> str:
    """The name of a library's folder: ``linux-x86_64-cu13-sm80-90``."""
    codes = "-".join(str(a) for a in manifest.sass)
    return f"{manifest.platform}-cu{manifest.toolchain.cuda.major}-sm{codes}"


ATTRIBUTES_NAME = ".gitattributes"
_CMAKE = Path(__file__).with_name("vendor_cmake")
_CMAKE_FILES = ("FlashAttentionFolder.cmake", "FlashAttentionConfig.cmake", "FlashAttentionConfigVersion.cmake")
"""What CMake reads of a folder of several libraries."""
_ELSEWHERE = "flashdepot vendor DIR"


class Vendored(msgspec.Struct, frozen=True):
    """Where a library went; ``changed`` is false when all of it was there already."""

    directory: Path
    folder: Path
    changed: bool


def vendor(manifest: Manifest, source: Callable[[ManifestFile], Path], directory: Path) -> Vendored:
    """Put a library into its target's folder of ``directory``, next to those of other targets.

    Everything else in ``directory`` stays. The index is written last, so that whatever is killed on the way, the next
    run ends as this one would have; files that are right already are not touched, nor are their times.

    :param source: where the bytes of a regular file are.
    :raises UsageError: when a link or something else of the user's is in the way; nothing is touched then.
    """
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  (as typed, through whatever links)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file, and libraries go into a folder.", hint=f"Name another: {_ELSEWHERE}")
    text = manifest_text(manifest)
    target = VendoredTarget.of(manifest, hashlib.sha256(text).hexdigest())
    folder = directory / target.folder
    require_no_links(directory, (ATTRIBUTES_NAME, INDEX_NAME, *_CMAKE_FILES, target.folder), _ELSEWHERE)
    index = read_index(directory) or VendorIndex()
    changed = examine_manifest(folder, target.manifest_digest) is not None or bool(examine_files(folder, manifest))
    if changed:
        export(manifest, source, directory, inside=target.folder, elsewhere=_ELSEWHERE, disguised=is_disguised)
    lines = attribute_lines(target.folder)
    changed |= rewrite_file(directory, ATTRIBUTES_NAME, lambda old: with_lines(old, lines), _ELSEWHERE)
    for name in _CMAKE_FILES:
        changed |= rewrite_file(directory, name, partial(_shipped, name), _ELSEWHERE)
    changed |= rewrite_file(directory, INDEX_NAME, lambda _old: index.with_target(target).text(), _ELSEWHERE)
    return Vendored(directory, folder, changed)


def _shipped(name: str, _old: bytes) -> bytes:
    return (_CMAKE / name).read_bytes()
