"""Wheels of ours as an index holds them: the file, and what is read out of it."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path

import msgspec

from flashdepot.binary.wheel import read_wheel
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.model.index_record import IndexedWheel
from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import wheel_name
from flashdepot.model.wheel_name import WheelName
from flashdepot.system.files import sha256_file

_VARIANT = re.compile(r"(?P<plain>.+?-\d[^-]*(?:-[^-]+){4})-(?P<label>[a-z0-9_.]{1,16})\.whl")
"""A wheel with a build tag, as all of ours have, and a variant label (PEP 825, "Wheel filename")."""


class HeldWheel(msgspec.Struct, frozen=True):
    """A wheel file with its row in the record, its METADATA and its manifest."""

    path: Path
    row: IndexedWheel
    metadata: bytes
    origin: bytes
    manifest: Manifest

    @property
    def name(self) -> str:
        """Its file name."""
        return self.row.filename


def plain_name(filename: str) -> tuple[str, str]:
    """A wheel's name without its variant label, and the label, empty for a plain wheel."""
    match = _VARIANT.fullmatch(filename)
    return (f"{match['plain']}.whl", match["label"]) if match else (filename, "")


def read_held(path: Path, uploaded: str, *, thoroughly: bool = True) -> HeldWheel:
    """Read a wheel of ours.

    :param uploaded: when the index had it first.
    :param thoroughly: verify every byte of it by its RECORD.
    :raises UsageError: for a wheel that flashdepot has not made, or that has another name than it was made with.
    :raises IntegrityError: for one that is damaged.
    """
    plain, label = plain_name(path.name)
    name = WheelName.parse(plain)
    if thoroughly and (problems := read_wheel(path, lambda *_: None).problems):
        raise UsageError(f"{path} is not as it was made: {problems[0]}.", hint="Make it again: flashdepot wheel")
    with zipfile.ZipFile(path) as archive:
        folder = f"{name.distribution}-{name.version}{f'+{name.local}' if name.local else ''}.dist-info"
        try:
            metadata, origin = (archive.read(f"{folder}/{text}") for text in ("METADATA", "flashdepot.json"))
            manifest = Manifest.from_json(json.loads(origin))
        except (KeyError, ValueError) as error:
            raise _not_ours(path, str(error)) from error
    if not label and path.name != wheel_name(manifest):
        raise _not_ours(path, f"its manifest makes {wheel_name(manifest)}")
    row = IndexedWheel.of(
        manifest,
        filename=path.name,
        version=folder.removeprefix(f"{name.distribution}-").removesuffix(".dist-info"),
        label=label,
        sha256=sha256_file(path),
        size=path.stat().st_size,
        uploaded=uploaded,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        manifest_sha256=hashlib.sha256(origin).hexdigest(),
    )
    return HeldWheel(path, row, metadata, origin, manifest)


def _not_ours(path: Path, why: str) -> FlashdepotError:
    return UsageError(
        f"{path} is not a wheel that this flashdepot makes ({why}), and an index of ours holds no others.",
        hint="Make one: flashdepot wheel --out DIR",
    )
