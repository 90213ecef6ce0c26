"""Our wheels as an index holds them: what is read out of them, and the variants that are made of them."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from flashdepot.binary.wheel import read_wheel
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.index.subindexes import main_wheels
from flashdepot.model.index_record import IndexedFile, IndexedWheel
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import Architecture
from flashdepot.model.wheel import FLASH_ATTN, WheelName
from flashdepot.resolve.own_wheel_name import DISTRIBUTION, wheel_name
from flashdepot.wheel import NAMES
from flashdepot.wheel.builder import JAX_PACKAGE, Entry, jax_wheel_name, write_wheel

_VARIANT = re.compile(r"(?P<plain>.+?-\d[^-]*(?:-[^-]+){4})-(?P<label>[a-z0-9_.]{1,16})\.whl")
"""A wheel with a build tag, as all ours have, and a variant label (PEP 825, "Wheel filename")."""


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
    variant = _VARIANT.fullmatch(path.name)
    label = variant["label"] if variant else ""
    name = WheelName.parse(f"{variant['plain']}.whl" if variant else path.name)
    small = name.canonical in NAMES
    if small and (label or not name.local.startswith("flashdepot.")):
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
    if not label and path.name != made:
        raise _not_ours(path, f"its manifest makes {made}")
    digest = hashlib.sha256(origin).hexdigest()
    row = IndexedWheel.of(manifest, label=label, manifest_sha256=digest, **of_file)
    return LocalWheel(path, row, metadata, origin, manifest)


def _not_ours(path: Path, why: str) -> FlashdepotError:
    return UsageError(
        f"{path} is not a wheel that this flashdepot makes ({why}), and our index holds no others.",
        hint="Make one: flashdepot wheel --out DIR",
    )


_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}
_LONGEST_LABEL = 16
_LABEL_DIGITS = 8


def label_of(sass: Sequence[Architecture]) -> str:
    """The label of a variant: its architectures, or where these are too many to spell, a digest of them."""
    spelled = "_".join(f"sm{architecture}" for architecture in sass)
    if len(spelled) <= _LONGEST_LABEL:
        return spelled
    return f"sm_{hashlib.sha256(spelled.encode()).hexdigest()[:_LABEL_DIGITS]}"


def missing_variants(held: Iterable[LocalWheel]) -> Iterator[tuple[LocalWheel, str, str]]:
    """Each smaller wheel that should be a variant of a main wheel and is not yet, with the file name and version.

    That is a plain wheel of the same source, system, CUDA and contents for some of the main wheel's architectures.
    """
    every = [wheel for wheel in held if wheel.row.distribution == FLASH_ATTN]
    by_name = {wheel.name: wheel for wheel in every}
    for main in main_wheels(wheel.row for wheel in every).values():
        smaller = [wheel for wheel in every if _is_part(wheel, by_name[main.filename])]
        smaller.sort(key=lambda wheel: (wheel.row.uploaded, wheel.name))
        # Of each set of architectures the one that came last: an installer knows them only by their label.
        for wheel in {wheel.row.sass: wheel for wheel in smaller}.values():
            _, _, build, *tags = wheel.name.removesuffix(".whl").split("-")
            name = "-".join([DISTRIBUTION, main.version, build, *tags, label_of(wheel.row.sass)]) + ".whl"
            if name not in by_name:
                yield wheel, name, main.version


def variants_files(rows: Iterable[IndexedWheel]) -> Mapping[str, bytes]:
    """What every version with variants has on its page, by name: which label stands for which properties."""
    versions: dict[str, list[IndexedWheel]] = {}
    for row in rows:
        if row.label:
            versions.setdefault(row.version, []).append(row)
    return {
        f"{DISTRIBUTION}-{version}-variants.json": _document({row.label: _properties(row) for row in found})
        for version, found in sorted(versions.items())
    }


def write_variant(wheel: LocalWheel, name: str, version: str, folder: Path) -> Path:
    """A wheel again as a variant of another version: the same files, with new metadata."""
    old = f"{DISTRIBUTION}-{wheel.row.version}.dist-info"
    new = f"{DISTRIBUTION}-{version}.dist-info"
    label = label_of(wheel.row.sass)

    def entries() -> Iterator[Entry]:
        with zipfile.ZipFile(wheel.path) as archive:
            for info in archive.infolist():
                if info.filename == f"{old}/RECORD":
                    continue
                data = archive.read(info)
                if info.filename == f"{old}/METADATA":
                    stated, instead = (f"\nVersion: {v}\n".encode() for v in (wheel.row.version, version))
                    data = data.replace(stated, instead, 1)
                place = info.filename.replace(f"{old}/", f"{new}/", 1)
                executable = bool(info.external_attr >> 16 & 0o100)
                yield Entry(place, lambda data=data: data, executable)  # type: ignore[misc]
        yield Entry(f"{new}/variant.json", lambda: _document({label: _properties(wheel.row)}))

    return write_wheel(folder / name, entries(), new).path


def _is_part(wheel: LocalWheel, main: LocalWheel) -> bool:
    ours, whole = wheel.row, main.row
    return (
        not ours.label
        and ours.filename != whole.filename
        and Version(ours.version).public == Version(whole.version).public
        and (ours.platform, ours.cuda, ours.units, ours.features)
        == (whole.platform, whole.cuda, whole.units, whole.features)
        and {*ours.sass} < {*whole.sass}
    )


def _properties(row: IndexedWheel) -> dict[str, Any]:
    """What the machine must have: a driver for this CUDA, and a GPU that runs one of these architectures."""
    return {
        _NAMESPACE: {
            "cuda_version_lower_bound": [".".join(map(str, (*row.cuda.numbers, 0)[:2]))],
            "sm_arch": [f"{architecture}_real" for architecture in row.sass],
        }
    }


def _document(variants: Mapping[str, Any]) -> bytes:
    document = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": dict(sorted(variants.items())),
    }
    return (json.dumps(document, indent=1) + "\n").encode()
