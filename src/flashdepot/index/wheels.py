"""Our wheels as an index holds them: what is read out of them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.binary.wheel import read_wheel
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.model.index_record import IndexedFile, IndexedWheel
from flashdepot.model.manifest import Manifest
from flashdepot.model.wheel import WheelName
from flashdepot.resolve.own_wheel_name import wheel_name
from flashdepot.wheel import NAMES
from flashdepot.wheel.builder import JAX_PACKAGE, jax_wheel_name


class LocalFile(msgspec.Struct, frozen=True):
    """A wheel file with its row in the record and its METADATA; a small wheel is no more than that."""

    path: Path
    row: IndexedFile
    metadata: bytes

    @property
    def name(self) -> str:
        """Its file name."""
        return self.row.filename


class LocalWheel(LocalFile, frozen=True):
    """A wheel with a library, and the library's manifest."""

    row: IndexedWheel
    origin: bytes
    manifest: Manifest


def read_local(path: Path, uploaded: str, *, thoroughly: bool = True) -> LocalFile:
    """Read a wheel that flashdepot made: one with a library, or a small one, flash-attn-3's or flash-attn-4's.

    :param uploaded: when the index had it first.
    :param thoroughly: verify every byte of it by its RECORD.
    """
    name = WheelName.parse(path.name)
    small = name.canonical in NAMES
    if small and not name.local.startswith("flashdepot."):
        raise _not_ours(path, "its version does not end in +flashdepot")
    if thoroughly and (problems := read_wheel(path, lambda *_: None).problems):
        raise UsageError(f"{path} is not as it was made: {problems[0]}.", hint="Make it again: flashdepot wheel")
    with zipfile.ZipFile(path) as archive:
        folder = f"{name.distribution}-{name.full_version}.dist-info"
        try:
            metadata = archive.read(f"{folder}/METADATA")
            origin = b"" if small else archive.read(f"{folder}/flashdepot.json")
            manifest = None if small else Manifest.from_json(json.loads(origin))
        except (KeyError, ValueError) as error:
            raise _not_ours(path, str(error)) from error
    of_file: dict[str, Any] = {
        "filename": path.name,
        "sha256": sha256_file(path),
        "size": path.stat().st_size,
        "uploaded": uploaded,
        "metadata_sha256": hashlib.sha256(metadata).hexdigest(),
        "version": name.full_version,
    }
    if manifest is None:
        return LocalFile(path, IndexedFile(**of_file), metadata)
    made = jax_wheel_name(manifest) if name.distribution == JAX_PACKAGE else wheel_name(manifest)
    if path.name != made:
        raise _not_ours(path, f"its manifest makes {made}")
    digest = hashlib.sha256(origin).hexdigest()
    row = IndexedWheel.of(manifest, manifest_sha256=digest, **of_file)
    return LocalWheel(path, row, metadata, origin, manifest)


def _not_ours(path: Path, why: str) -> FlashdepotError:
    return UsageError(
        f"{path} is not a wheel that this flashdepot makes ({why}), and our index holds no others.",
        hint="Make one: flashdepot wheel --out DIR",
    )
