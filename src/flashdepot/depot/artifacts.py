"""The manifests of a depot and the files they name.

A record in ``artifacts/`` is a manifest and the time when it was stored. The time is no part of the manifest, so that
libraries of one recipe are equal byte for byte wherever they were made.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from flashdepot.depot.blobs import Blobs
from flashdepot.depot.layout import DepotLayout, inside
from flashdepot.errors import IntegrityError
from flashdepot.model.manifest import Manifest
from flashdepot.model.table import Table
from flashdepot.system.files import disk_errors
from flashdepot.system.own_names import key_of, writable
from flashdepot.system.records import is_foreign, read_record, write_record

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

    def manifests(self) -> Iterator[Manifest]:
        """Yield every manifest that can be read, in order of recipe key; one that cannot is reported and left out."""
        for path in self.files():
            if found := self._readable(path):
                yield found[0]

    def newest_first(self) -> list[Manifest]:
        """Return every manifest that can be read, the last stored first."""
        found = [readable for path in self.files() if (readable := self._readable(path))]
        return [manifest for manifest, _ in sorted(found, key=lambda pair: pair[1], reverse=True)]

    def load(self, recipe_key: str) -> Manifest | None:
        """Return the manifest of a recipe, ``None`` when there is none.

        :raises IntegrityError: when it cannot be read.
        """
        try:
            return read_artifact(self._layout.artifact(recipe_key))[0]
        except FileNotFoundError:
            return None

    def store(self, manifest: Manifest, files: Mapping[str, Path]) -> None:
        """Keep an artifact: first its files, last its manifest, so that no manifest is ever without its files.

        :param files: where the bytes are of each file that the manifest names, by its path in the artifact.
        :raises IntegrityError: when a file is not what the manifest says; the artifact is not stored then.
        :raises MissingToolError: when the disk is full or may not be written.
        """
        for file in manifest.files:
            if not file.link and (digest := self._blobs.put_file(files[file.path])) != file.digest:
                raise IntegrityError(
                    f"{files[file.path]} changed after its manifest was made: expected SHA-256 {file.digest}, "
                    f"found {digest}.",
                    hint="Build again, and leave the build's folder alone while it runs.",
                )
        self._write(manifest)

    def adopt(self, manifest: Manifest) -> None:
        """Keep an artifact whose files are blobs of this depot already.

        :raises IntegrityError: when one of them is missing or damaged; the artifact is not stored then.
        :raises MissingToolError: when the disk is full or may not be written.
        """
        for file in manifest.files:
            if not file.link and self._blobs.verified_path(file.digest).stat().st_size != file.size:
                raise IntegrityError(f"{file.path} does not have the {file.size} bytes that its manifest states.")
        self._write(manifest)

    def _write(self, manifest: Manifest) -> None:
        with disk_errors(self._layout.root):
            write_record(
                writable(self._layout.artifact(manifest.recipe_key)),
                {"schema": ARTIFACT_SCHEMA, "created": time.time(), "manifest": manifest.to_json()},
            )

    def by_last_use(self) -> list[StoredArtifact]:
        """Return all artifacts, the last used first."""
        stored = []
        for path in self.files():
            if found := self._readable(path):
                with contextlib.suppress(FileNotFoundError):
                    used = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
                    stored.append(StoredArtifact(*found, used))
        return sorted(stored, key=lambda a: a.last_used, reverse=True)

    def remove(self, recipe_key: str) -> bool:
        """Remove a manifest; gc then frees its files.

        :returns: whether there was one.
        :raises MissingToolError: when the depot may not be written.
        """
        with disk_errors(self._layout.root):
            try:
                self._layout.artifact(recipe_key).unlink()
            except FileNotFoundError:
                return False
        return True

    def files(self) -> Iterator[Path]:
        """Yield the file of every manifest there is, in order."""
        found = inside(self._layout.root / "artifacts")
        yield from (path for path in found if path.suffix == ".json" and path.name[0] in "0123456789abcdef")

    def _readable(self, path: Path) -> tuple[Manifest, datetime] | None:
        try:
            return read_artifact(path)
        except FileNotFoundError:
            return None
        except (IntegrityError, OSError) as error:
            if _is_of_another_release(path):
                self._on_problem(f"{path} was written by another release of flashdepot, which this one does not read.")
            else:
                self._on_problem(f"{error} It is left out; 'flashdepot depot verify' moves damaged ones away.")
            return None


def _is_of_another_release(path: Path) -> bool:
    try:
        return is_foreign(path, ARTIFACT_SCHEMA)
    except (IntegrityError, OSError):
        return False


def read_artifact(path: Path) -> tuple[Manifest, datetime]:
    """Read a file of ``artifacts/``: a manifest, and when it was stored.

    :raises FileNotFoundError: when it is not there.
    :raises IntegrityError: when it is damaged, of another recipe than its name says, or of another schema.
    """
    data = read_record(path)
    try:
        record = Table(data)
        if (schema := record.take("schema", int)) != ARTIFACT_SCHEMA:
            raise ValueError(f"its schema is {schema}, and this flashdepot reads {ARTIFACT_SCHEMA}")  # noqa: TRY301
        manifest = Manifest.from_json(record.take("manifest", dict))
        created = datetime.fromtimestamp(record.take("created", float), timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise IntegrityError(f"{path} cannot be used: {error}.") from error
    if manifest.recipe_key != key_of(path):
        raise IntegrityError(f"{path} cannot be used: it holds the recipe key {manifest.recipe_key!r}.")
    return manifest, created


def manifest_text(manifest: Manifest) -> bytes:
    """Return the manifest as it lies in a library's folder, for people to read."""
    return msgspec.json.format(json.dumps(manifest.to_json()).encode(), indent=2) + b"\n"
