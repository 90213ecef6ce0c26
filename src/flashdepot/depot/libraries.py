"""Libraries put together from blobs inside the depot, ready to be linked against."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.blobs import Blobs
from flashdepot.depot.fingerprint import Fingerprint
from flashdepot.depot.layout import DepotLayout, hidden_sibling, is_leftover
from flashdepot.errors import IntegrityError
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
from flashdepot.system.files import disk_errors, read_json, sha256_file, write_json
from flashdepot.system.own_names import held_by_another, writable

STAMP_SCHEMA = 1


class Libraries:
    """The folders of ``libraries/``.

    Beside each lies a stamp: the digest and the fingerprint of every file when its bytes were last proved. As long as
    the fingerprints are the same nothing is read again, which is what makes a depot hit quick.
    """

    def __init__(self, layout: DepotLayout, blobs: Blobs) -> None:
        self._layout = layout
        self._blobs = blobs

    def intact(self, manifest: Manifest) -> bool:
        """Whether every file of an artifact is there and right, in its folder or as blobs."""
        regular = (file for file in manifest.files if not file.link)
        return self._stamped(manifest) or all(self._blobs.find(file.digest) for file in regular)

    def materialise(self, manifest: Manifest) -> Path:
        """Return the folder of a library, made on first use and fixed where it was damaged. Nobody may write into it.

        :raises IntegrityError: when a file must be made and its blob is missing or damaged.
        :raises MissingToolError: when it must be made and the disk is full or may not be written.
        """
        folder = self._layout.library(manifest.recipe_key)
        if self._stamped(manifest):
            return folder
        if held_by_another(folder) and (
            folder.is_symlink() or len(self._prove(manifest, folder)) <= len(manifest.files)
        ):
            folder = writable(folder)
        if not folder.is_dir():
            self._create(manifest, folder)
        proved = self._prove(manifest, folder)
        wrong = [file for file in _all_files(manifest) if file.path not in proved]
        with disk_errors(folder):
            for file in wrong:
                self._place(manifest, file, folder)
            for path in _unlisted(manifest, folder):
                path.unlink(missing_ok=True)
        if wrong:
            proved = self._prove(manifest, folder)
        stamp = {path: [file.digest, *fingerprint] for path, (file, fingerprint) in proved.items() if not file.link}
        with contextlib.suppress(OSError):  # a depot that may not be written: the next process reads the bytes again
            write_json(writable(self._layout.stamp(manifest.recipe_key)), {"schema": STAMP_SCHEMA, "files": stamp})
        return folder

    def source(self, manifest: Manifest) -> Callable[[ManifestFile], Path]:
        """How to find the bytes of each regular file of an artifact: in its folder when that is proved, else as a blob.

        The function raises :class:`IntegrityError` for a file that is missing or damaged.
        """
        if self._stamped(manifest):
            folder = self._layout.library(manifest.recipe_key)
            return lambda file: folder / file.path
        return lambda file: self._blobs.verified_path(file.digest)

    def differences(self, manifest: Manifest) -> list[str]:
        """Return the paths of a library's files that are missing or wrong, by their bytes; empty without a folder."""
        folder = self._layout.library(manifest.recipe_key)
        if not folder.is_dir():
            return []
        proved = self._prove(manifest, folder)
        return [file.path for file in _all_files(manifest) if file.path not in proved]

    def _stamped(self, manifest: Manifest) -> bool:
        folder = self._layout.library(manifest.recipe_key)
        try:
            stamp = read_json(self._layout.stamp(manifest.recipe_key))
            if stamp["schema"] != STAMP_SCHEMA:
                return False
            return all(
                _links_to(folder / file.path, file.link)
                if file.link
                else stamp["files"][file.path] == [file.digest, *Fingerprint.of(folder / file.path)]
                for file in _all_files(manifest)
            )
        except (OSError, IntegrityError, KeyError, TypeError):
            return False

    def _prove(self, manifest: Manifest, folder: Path) -> dict[str, tuple[ManifestFile, Fingerprint]]:
        """Return the files whose bytes are right. One that is a link to a verified blob is not read again."""
        proved: dict[str, tuple[ManifestFile, Fingerprint]] = {}
        for file in _all_files(manifest):
            path = folder / file.path
            with contextlib.suppress(OSError):
                seen = Fingerprint.of(path)
                if file.link:
                    right = _links_to(path, file.link)
                elif path.is_symlink():
                    right = False
                else:
                    right = self._blobs.is_verified(file.digest, seen) or sha256_file(path) == file.digest
                if right:
                    proved[file.path] = (file, seen)
        return proved

    def _create(self, manifest: Manifest, folder: Path) -> None:
        temporary = self._layout.new_temporary("library")
        with disk_errors(folder):
            try:
                for file in _all_files(manifest):
                    self._place(manifest, file, temporary)
                folder.parent.mkdir(exist_ok=True)
                try:
                    temporary.rename(folder)
                except OSError:
                    if not folder.is_dir():  # otherwise another process was first: what it made is proved next
                        raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def _place(self, manifest: Manifest, file: ManifestFile, folder: Path) -> None:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = hidden_sibling(path)
        try:
            if file.path == MANIFEST_NAME:
                temporary.write_bytes(manifest_text(manifest))
            elif file.link:
                temporary.symlink_to(file.link)
            else:
                self._blobs.link_or_copy(file.digest, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _all_files(manifest: Manifest) -> Iterator[ManifestFile]:
    """Return the files of a library's folder: those that the manifest names, and the manifest itself."""
    yield from manifest.files
    text = manifest_text(manifest)
    yield ManifestFile(MANIFEST_NAME, hashlib.sha256(text).hexdigest(), len(text))


def _unlisted(manifest: Manifest, folder: Path) -> list[Path]:
    """Return what an earlier artifact of the same recipe left: a header that is no longer there must not be found."""
    listed = {folder / file.path for file in _all_files(manifest)}
    return [
        path
        for path in folder.rglob("*")
        if path not in listed and not is_leftover(path) and (path.is_symlink() or not path.is_dir())
    ]


def _links_to(path: Path, target: str) -> bool:
    return path.is_symlink() and path.readlink() == Path(target)
