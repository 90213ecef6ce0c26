"""The manifests of a depot and the files they name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from flashdepot.depot.blobs import Blobs
from flashdepot.depot.layout import DepotLayout, is_digest
from flashdepot.errors import FlashdepotError, IntegrityError
from flashdepot.model.manifest import Manifest
from flashdepot.system.files import disk_errors, read_json, write_json
from flashdepot.system.own_names import key_of, writable


@dataclass(frozen=True)
class StoredArtifact:
    """A manifest and when its artifact was last taken. ``manifest.size`` is its size in bytes."""

    manifest: Manifest
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
            if manifest := self._readable(path):
                yield manifest

    def load(self, recipe_key: str) -> Manifest | None:
        """Return the manifest of a recipe, ``None`` when there is none.

        :raises IntegrityError: when it cannot be read.
        """
        try:
            return read_manifest(self._layout.artifact(recipe_key))
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
        with disk_errors(self._layout.root):
            write_json(writable(self._layout.artifact(manifest.recipe_key)), manifest.to_json())

    def by_last_use(self) -> list[StoredArtifact]:
        """Return all artifacts, the last used first."""
        found = []
        for manifest in self.manifests():
            try:
                used = self._layout.artifact(manifest.recipe_key).stat().st_mtime
            except FileNotFoundError:
                continue
            found.append(StoredArtifact(manifest, datetime.fromtimestamp(used, timezone.utc)))
        return sorted(found, key=lambda a: a.last_used, reverse=True)

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
        yield from sorted((self._layout.root / "artifacts").glob("[0-9a-f]*.json"))

    def _readable(self, path: Path) -> Manifest | None:
        try:
            return read_manifest(path)
        except FileNotFoundError:
            return None
        except (IntegrityError, OSError) as error:
            self._on_problem(f"{error} It is left out; 'flashdepot depot verify' moves damaged ones away.")
            return None


def _wrong(manifest: Manifest, path: Path) -> str:
    if manifest.recipe_key != key_of(path) or not is_digest(manifest.recipe_key):
        return f"it holds the recipe key {manifest.recipe_key!r}"
    nameless = [file.path for file in manifest.files if not file.link and not is_digest(file.digest)]
    return f"its file {nameless[0]} has no SHA-256" if nameless else ""


def read_manifest(path: Path) -> Manifest:
    """Read a file of ``artifacts/``.

    :raises FileNotFoundError: when it is not there.
    :raises IntegrityError: when it is damaged, or of another schema.
    """
    data = read_json(path)
    try:
        manifest = Manifest.from_json(data)
    except (ValueError, AttributeError, KeyError, TypeError, FlashdepotError) as error:
        raise IntegrityError(f"{path} cannot be used: {error}.") from error
    if wrong := _wrong(manifest, path):
        raise IntegrityError(f"{path} cannot be used: {wrong}.")
    return manifest


def manifest_text(manifest: Manifest) -> bytes:
    """Return the manifest as it lies in a library's folder, for people to read."""
    return (json.dumps(manifest.to_json(), indent=2) + "\n").encode()
