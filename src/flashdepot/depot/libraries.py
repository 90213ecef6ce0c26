"""The libraries of a depot: their manifests, and their folders, ready to be linked against.

A record in ``artifacts/`` is a manifest and the time when it was stored. The time is not a part of the manifest, so that
libraries of one recipe are equal byte for byte wherever they were made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.depot.blobs import Blobs
from flashdepot.depot.layout import DepotLayout, inside, is_leftover, key_of, moment, remove
from flashdepot.errors import IntegrityError, MissingToolError, NewerError, UsageError
from flashdepot.files.disk import disk_errors, hidden_sibling, make_link
from flashdepot.files.documents import read_record, write_record
from flashdepot.files.folders import KnownDigests, contents, differences
from flashdepot.model.codec import read
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile, unusable

ARTIFACT_SCHEMA = 3


class StoredArtifact(msgspec.Struct, frozen=True):
    """A manifest, when its artifact was stored, and when it was last taken. ``manifest.size`` is its size in bytes."""

    manifest: Manifest
    created: datetime
    last_used: datetime


class Artifacts:
    """The artifacts of one depot.

    :param on_problem: called with a sentence for every manifest that cannot be read.
    """

    def __init__(self, layout: DepotLayout, blobs: Blobs, on_problem: Callable[[str], None]) -> None:
        self._layout = layout
        self._blobs = blobs
        self._on_problem = on_problem

    def stored(self) -> Iterator[StoredArtifact]:
        """Every artifact whose manifest can be read, in order of recipe key; the others are reported."""
        return filter(None, map(self._read, self.files()))

    def manifests(self) -> Iterator[Manifest]:
        """The manifest of each of :meth:`stored`."""
        return (artifact.manifest for artifact in self.stored())

    def load(self, recipe_key: str) -> Manifest | None:
        """The manifest of a recipe; ``None`` when there is none, or when it cannot be read, which is reported."""
        found = self._read(self._layout.artifact(recipe_key))
        return None if found is None else found.manifest

    def _read(self, path: Path) -> StoredArtifact | None:
        try:
            manifest, created = read_artifact(path)
            return StoredArtifact(manifest, created, moment(path.stat().st_mtime))
        except FileNotFoundError:
            pass
        except NewerError as error:
            self._on_problem(f"{error} It is left out. {error.hint}".rstrip())
        except (IntegrityError, OSError) as error:
            self._on_problem(f"{error} It is left out; 'flashdepot depot verify' moves damaged ones away.")
        return None

    def store(self, manifest: Manifest, files: Mapping[str, Path]) -> None:
        """Keep an artifact: first its files, by their paths in it, last its manifest; :raises IntegrityError: for other bytes."""
        for file in manifest.files:
            if not file.link and (digest := self._blobs.put_file(files[file.path])) != file.digest:
                raise IntegrityError(
                    f"{files[file.path]} changed after its manifest was made: expected SHA-256 {file.digest}, "
                    f"found {digest}.",
                    hint="Build again, and leave the build's folder untouched while it runs.",
                )
        self._write(manifest)

    def adopt(self, manifest: Manifest) -> None:
        """Keep an artifact whose files are blobs here already; :raises IntegrityError: when one is missing or damaged."""
        for file in manifest.files:
            if not file.link and self._blobs.verified_path(file.digest).stat().st_size != file.size:
                raise IntegrityError(f"{file.path} does not have the {file.size} bytes that its manifest states.")
        self._write(manifest)

    def _write(self, manifest: Manifest) -> None:
        with disk_errors(self._layout.root):
            write_record(
                self._layout.artifact(manifest.recipe_key),
                {"schema": ARTIFACT_SCHEMA, "created": time.time(), "manifest": manifest.to_json()},
            )

    def by_last_use(self) -> list[StoredArtifact]:
        """All artifacts, the last used first."""
        return sorted(self.stored(), key=lambda artifact: artifact.last_used, reverse=True)

    def named(self, key: str) -> StoredArtifact:
        """The artifact whose recipe key begins so; :raises UsageError: when there is none, or several."""
        found = [artifact for artifact in self.stored() if artifact.manifest.recipe_key.startswith(key)]
        if len(found) == 1:
            return found[0]
        problem = (
            f"{len(found)} stored libraries have keys that begin with" if found else "no stored library has the key"
        )
        raise UsageError(f"'{key}': {problem} {key}.", hint="'flashdepot depot ls' lists them.")

    def files(self) -> Iterator[Path]:
        """The file of every manifest there is, in order."""
        found = inside(self._layout.root / "artifacts")
        yield from (path for path in found if path.suffix == ".json" and path.name[0] in "0123456789abcdef")


class _Record(msgspec.Struct, frozen=True):
    manifest: dict[str, Any] = {}
    created: float = 0.0


def read_artifact(path: Path) -> tuple[Manifest, datetime]:
    """Read a file of ``artifacts/``: a manifest, and when it was stored; :raises NewerError: for one of another release."""
    data = read_record(path, ARTIFACT_SCHEMA)
    try:
        record = read(data, _Record)
        manifest = Manifest.from_json(record.manifest)
        created = datetime.fromtimestamp(record.created, timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise unusable(path, error) from error
    if manifest.recipe_key != key_of(path):
        raise IntegrityError(f"{path} cannot be used: it holds the recipe key {manifest.recipe_key!r}.")
    return manifest, created


def manifest_text(manifest: Manifest) -> bytes:
    """The manifest as it is in a library's folder, for people to read."""
    return msgspec.json.format(json.dumps(manifest.to_json()).encode(), indent=2) + b"\n"


class Libraries:
    """The folders of ``libraries/``. Each is hashed whenever it is chosen or handed out: no stamp is trusted.

    :param digests: what this process has hashed, so that choosing a library and handing it out reads it once.
    """

    def __init__(self, layout: DepotLayout, blobs: Blobs, digests: KnownDigests) -> None:
        self._layout = layout
        self._blobs = blobs
        self._digests = digests

    def intact(self, manifest: Manifest) -> bool:
        """Whether every file of an artifact is there and right, in its folder or as a blob."""
        wrong = set(self._wrong(manifest, self._layout.library(manifest.recipe_key)))
        return all(self._blobs.find(file.digest) for file in manifest.files if file.path in wrong and not file.link)

    def materialise(self, manifest: Manifest) -> Path:
        """The folder of a library, made, and fixed where it was damaged; :raises IntegrityError: when a blob is missing."""
        folder = self._layout.library(manifest.recipe_key)
        wrong = self._wrong(manifest, folder)
        if folder.is_symlink() or not folder.is_dir():
            self._create(manifest, folder)
            wrong = self._wrong(manifest, folder)
        places = {MANIFEST_NAME: None, **{file.path: file for file in manifest.files}}
        with disk_errors(folder):
            for path in wrong:
                if path not in places:
                    remove(folder / path)  # of an earlier artifact, or planted: no compiler may find it
            for path in wrong:
                if path in places:
                    self._place(manifest, path, places[path], folder)
        # What the depot lost and the folder, which is right, still has; one that may not be written serves all the same.
        with contextlib.suppress(MissingToolError):
            for file in manifest.files:
                if not file.link and not self._blobs.has(file.digest):
                    self._blobs.put_file(folder / file.path)
        return folder

    def source(self, manifest: Manifest) -> Callable[[ManifestFile], Path]:
        """How to find the bytes of each regular file of an artifact: in its folder, else as :meth:`Blobs.verified_path`."""
        folder = self._layout.library(manifest.recipe_key)
        wrong = {*self._wrong(manifest, folder)}
        return lambda file: self._blobs.verified_path(file.digest) if file.path in wrong else folder / file.path

    def differences(self, manifest: Manifest) -> list[str]:
        """The paths in a library's folder that are missing, wrong or too many; empty without a folder."""
        folder = self._layout.library(manifest.recipe_key)
        return self._wrong(manifest, folder) if folder.is_dir() else []

    def _wrong(self, manifest: Manifest, folder: Path) -> list[str]:
        try:
            held = {} if folder.is_symlink() else contents(folder, self._digests.of_all)
        except OSError:
            held = {}
        # What another process is about to rename is not there yet.
        there = {path: content for path, content in held.items() if not is_leftover(Path(path))}
        files = {file.path: f"-> {file.link}" if file.link else file.digest for file in manifest.files}
        return differences({**files, MANIFEST_NAME: hashlib.sha256(manifest_text(manifest)).hexdigest()}, there)

    def _create(self, manifest: Manifest, folder: Path) -> None:
        temporary = self._layout.new_temporary("library")
        with disk_errors(folder):
            try:
                for file in manifest.files:
                    self._place(manifest, file.path, file, temporary)
                self._place(manifest, MANIFEST_NAME, None, temporary)
                folder.parent.mkdir(exist_ok=True)
                if folder.is_symlink() or folder.is_file():
                    remove(folder)
                try:
                    temporary.rename(folder)
                except OSError:
                    if not folder.is_dir():  # otherwise another process was first: what it made is hashed next
                        raise
            finally:
                remove(temporary)

    def _place(self, manifest: Manifest, place: str, file: ManifestFile | None, folder: Path) -> None:
        """Put one file where it belongs; ``None`` is the manifest itself."""
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = hidden_sibling(path)
        try:
            if file is None:
                temporary.write_bytes(manifest_text(manifest))
            elif file.link:
                make_link(temporary, file.link)
            else:
                self._blobs.link_or_copy(file.digest, temporary)
            if path.is_dir() and not path.is_symlink():
                remove(path)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
