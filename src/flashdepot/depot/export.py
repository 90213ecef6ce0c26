"""A copy of a library in a folder of the user's: all of the new one, or all of the old one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.blobs import copy_verified
from flashdepot.depot.fingerprint import Fingerprint
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
from flashdepot.system.files import explain_disk_error, read_json, write_atomic

LIBRARY = "library"
"""The kind of artifact that is exported; the ``kind`` of its manifest."""

_STAGE = ".flashdepot-export-"
_NAMES_SHOWN = 3
_STAGE_LIFETIME = 3600.0
"""Seconds after which another export's stage counts as left behind by a kill."""


def export(
    manifest: Manifest, source: Callable[[ManifestFile], Path], destination: Path, *, elsewhere: str = "--out DIR"
) -> Path:
    """Copy a library into a folder and return the folder, absolute.

    Everything is first written to a stage inside the folder, and proved; only then are the earlier export's files
    replaced, its manifest first and the new manifest last. So a folder with a manifest is a whole library, whenever
    the process is killed; and because the folder itself is never replaced, it can be a mount point or the current
    folder, and files that a user added stay.

    :param source: where the bytes of a regular file are.
    :param elsewhere: how the person at the keyboard names another folder.
    :raises UsageError: when the folder holds something else than an earlier export; nothing is touched then.
    :raises IntegrityError: when the bytes are not what the manifest says; an earlier export is as it was then.
    :raises MissingToolError: when the disk is full or may not be written; likewise.
    """
    destination = Path(os.path.abspath(destination)).resolve()  # noqa: PTH100  (as typed, then through links)
    _require_ours(destination, manifest, elsewhere)
    new = not destination.exists()
    stage = destination / f"{_STAGE}{secrets.token_hex(4)}"
    with _errors_of_destination(destination, elsewhere):
        try:
            stage.mkdir(parents=True)
            for file in manifest.files:
                _copy(file, source, stage)
            write_atomic(stage / MANIFEST_NAME, manifest_text(manifest))
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            if new:
                with contextlib.suppress(OSError):
                    destination.rmdir()
            raise
        _replace(destination, stage, manifest)
    _remove_stages(destination, stage)
    return destination


def _require_ours(destination: Path, manifest: Manifest, elsewhere: str) -> None:
    hint = f"Name a new or an empty folder: {elsewhere}"
    if not destination.exists():
        return
    if not destination.is_dir():
        raise UsageError(f"{destination} is a file, and a library is a folder of files.", hint=hint)
    held = sorted(path.name for path in destination.iterdir())
    staged = any(name.startswith(_STAGE) for name in held)
    if held and not staged and not _is_library(destination):
        shown = ", ".join(held[:_NAMES_SHOWN]) + (", ..." if len(held) > _NAMES_SHOWN else "")
        raise UsageError(
            f"{destination} is not empty and is no library that flashdepot wrote: it holds {shown}. "
            "Writing there could destroy files.",
            hint=hint,
        )
    for file in manifest.files:
        path = destination / file.path
        parents = path.relative_to(destination).parents
        if path.is_dir() or any((destination / parent).is_file() for parent in parents):
            raise UsageError(f"{path} is in the way of a file of the library.", hint=hint)


def _is_library(folder: Path) -> bool:
    try:
        data = read_json(folder / MANIFEST_NAME)
    except (OSError, FlashdepotError):
        return False
    return isinstance(data, dict) and data.get("kind") == LIBRARY


def _copy(file: ManifestFile, source: Callable[[ManifestFile], Path], stage: Path) -> None:
    path = stage / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.link:
        path.symlink_to(file.link)
    else:
        copy_verified(source(file), file.digest, path)
        path.chmod(0o644)


def _replace(destination: Path, stage: Path, manifest: Manifest) -> None:
    """From here to the end the folder has no manifest, so nobody takes it for a library.

    A stage that a kill leaves in it tells the next export that the folder is ours all the same.
    """
    obsolete = _listed(destination) - {file.path for file in manifest.files}
    (destination / MANIFEST_NAME).unlink(missing_ok=True)
    for name in obsolete:
        _remove_with_empty_parents(destination / name, destination)
    for file in manifest.files:
        path = destination / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        (stage / file.path).replace(path)
    (stage / MANIFEST_NAME).replace(destination / MANIFEST_NAME)


def _listed(folder: Path) -> set[str]:
    """Return the files of the earlier export: only these are ours to remove."""
    try:
        return {file.path for file in Manifest.from_json(read_json(folder / MANIFEST_NAME)).files}
    except (OSError, FlashdepotError, ValueError, AttributeError, KeyError):
        return set()


def _remove_with_empty_parents(path: Path, top: Path) -> None:
    with contextlib.suppress(OSError):  # a folder in which the user keeps something stays
        path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent == top:
                break
            parent.rmdir()


def _remove_stages(destination: Path, ours: Path) -> None:
    for stage in destination.glob(f"{_STAGE}*"):
        with contextlib.suppress(OSError):
            if stage == ours or Fingerprint.of(stage).age > _STAGE_LIFETIME:
                shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def _errors_of_destination(destination: Path, elsewhere: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        explained = explain_disk_error(error, destination)
        if explained is None:
            raise
        explained.hint = f"Free space there, or name another folder: {elsewhere}"
        raise explained from error
