"""Libraries put together from blobs inside the depot, ready to be linked against."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.blobs import Blobs
from flashdepot.depot.fingerprint import remove
from flashdepot.depot.layout import DepotLayout, hidden_sibling, is_leftover
from flashdepot.errors import MissingToolError
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
from flashdepot.system.digests import KnownDigests, contents, differences
from flashdepot.system.files import disk_errors
from flashdepot.system.own_names import held_by_another, writable


class Libraries:
    """The folders of ``libraries/``. Each is hashed whenever it is chosen or handed out: no stamp is believed.

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
        """Return the folder of a library, made on first use and fixed where it was damaged. Nobody may write into it.

        :raises IntegrityError: when a file must be made and its blob is missing or damaged.
        :raises MissingToolError: when it must be made and the disk is full or may not be written.
        """
        folder = self._layout.library(manifest.recipe_key)
        wrong = self._wrong(manifest, folder)
        if wrong and held_by_another(folder):
            folder = writable(folder)
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
        self._restore_blobs(manifest, folder)
        return folder

    def source(self, manifest: Manifest) -> Callable[[ManifestFile], Path]:
        """How to find the bytes of each regular file of an artifact: in its folder when they are right, else as a blob.

        The function raises :class:`IntegrityError` for a file that is missing or damaged.
        """
        folder = self._layout.library(manifest.recipe_key)
        wrong = set(self._wrong(manifest, folder))
        return lambda file: self._blobs.verified_path(file.digest) if file.path in wrong else folder / file.path

    def differences(self, manifest: Manifest) -> list[str]:
        """Return the paths in a library's folder that are missing, wrong or too many; empty without a folder."""
        folder = self._layout.library(manifest.recipe_key)
        return self._wrong(manifest, folder) if folder.is_dir() else []

    def _wrong(self, manifest: Manifest, folder: Path) -> list[str]:
        try:
            held = {} if folder.is_symlink() else contents(folder, self._digests.of_all)
        except OSError:
            held = {}
        # What another process is about to rename is not there yet.
        there = {path: content for path, content in held.items() if not is_leftover(Path(path))}
        return differences(_expected(manifest), there)

    def _restore_blobs(self, manifest: Manifest, folder: Path) -> None:
        """Give back to the depot what it lost and the folder, which is right, still has."""
        with contextlib.suppress(MissingToolError):  # a depot that may not be written serves all the same
            for file in manifest.files:
                if not file.link and not self._blobs.has(file.digest):
                    self._blobs.put_file(folder / file.path)

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
                temporary.symlink_to(file.link)
            else:
                self._blobs.link_or_copy(file.digest, temporary)
            if path.is_dir() and not path.is_symlink():
                remove(path)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _expected(manifest: Manifest) -> Mapping[str, str]:
    """What :func:`contents` says of a library's folder that is right: the manifest's files, and the manifest itself."""
    files = {file.path: f"-> {file.link}" if file.link else file.digest for file in manifest.files}
    return {**files, MANIFEST_NAME: hashlib.sha256(manifest_text(manifest)).hexdigest()}
