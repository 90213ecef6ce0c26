"""A copy of a library in a folder of the user's: all of the new one, or all of the old one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from flashdepot.depot.libraries import manifest_text
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile, Written
from flashdepot.model.codec import Digest, read
from flashdepot.model.manifest import LIBRARY, MANIFEST_NAME, Manifest, ManifestFile

_FOLDERS = ("include", "lib", "share")
"""All that is in a library's folder next to its manifest. What a found manifest names elsewhere is not ours."""


def export(
    manifest: Manifest,
    source: Callable[[ManifestFile], Path],
    destination: Path,
    *,
    inside: str = "",
    elsewhere: str = "--out DIR",
    disguised: Callable[[bytes, frozenset[str]], bool] = lambda _data, _digests: False,
) -> Path:
    """Copy a library into a folder, or a folder ``inside`` it, and return it, absolute; raises as :meth:`OutputFolder.write`.

    :param disguised: whether bytes are those of a file as another program keeps it: a pointer of Git LFS.
    """
    folder = OutputFolder(
        destination, LIBRARY, MANIFEST_NAME, elsewhere, inside=inside, read=_written, disguised=disguised
    )
    return folder.write(library_files(manifest, source), manifest_text(manifest))


def require_exportable(destination: Path) -> None:
    """Raise what :func:`export` would raise of the folder itself, before the library is made."""
    OutputFolder(destination, LIBRARY, MANIFEST_NAME, "--out DIR", read=_written).require_usable()


def library_files(
    manifest: Manifest, source: Callable[[ManifestFile], Path], under: str = ""
) -> tuple[OutputFile, ...]:
    """The files of a library but its manifest, as they are written into a folder; ``under`` ends in ``/``."""

    def of(file: ManifestFile) -> OutputFile:
        return OutputFile(f"{under}{file.path}", file.digest, lambda: source(file), file.link)

    return tuple(map(of, manifest.files))


def _written(data: bytes) -> Written:
    """What an earlier export wrote, by the manifest of any release; :raises ValueError: for that of something else."""
    document = read(json.loads(data), _Exported)
    if document.kind != LIBRARY:
        raise ValueError("not the manifest of a library")
    outside = [file.path for file in document.files if file.path.partition("/")[0] not in _FOLDERS]
    if outside:
        raise ValueError(f"'{outside[0]}' is not a place in a library")
    return {file.path: OutputFile(file.path, file.digest, link=file.link).identities for file in document.files}


class _Exported(msgspec.Struct):
    """What the manifest of any release has."""

    kind: str
    recipe_key: Digest
    files: tuple[ManifestFile, ...]
