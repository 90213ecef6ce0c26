"""Variant wheels: the smaller wheels of a version, of which an installer takes the one for the GPU that is there.

The format is that of PEP 825 (drafted 2026-02), the provider that of PEP 850 (drafted 2026-10); uv 0.13.9 reads both with
``--preview-features wheel-variants``, and installers that do not know them pass such files over.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from flashdepot.index.held import HeldWheel
from flashdepot.index.shelves import main_wheels
from flashdepot.model.architecture import Architecture
from flashdepot.model.index_record import IndexedWheel
from flashdepot.model.own_wheel_name import DISTRIBUTION
from flashdepot.wheel.archive import write_archive
from flashdepot.wheel.contents import Entry

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


def missing_variants(held: Iterable[HeldWheel]) -> Iterator[tuple[HeldWheel, str, str]]:
    """Each smaller wheel that should be a variant of a main wheel and is not yet, with the file name and version.

    That is a plain wheel of the same source, system, CUDA and contents for some of the main wheel's architectures.
    """
    every = list(held)
    there = {wheel.name for wheel in every}
    by_name = {wheel.name: wheel for wheel in every}
    for main in main_wheels(wheel.row for wheel in every).values():
        smaller = [wheel for wheel in every if _is_part(wheel, by_name[main.filename])]
        for wheel in _newest_of_each(smaller):
            name = _variant_name(wheel, main)
            if name not in there:
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


def write_variant(wheel: HeldWheel, name: str, version: str, folder: Path) -> Path:
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
                    data = _with_version(data, wheel.row.version, version)
                place = info.filename.replace(f"{old}/", f"{new}/", 1)
                executable = bool(info.external_attr >> 16 & 0o100)
                yield Entry(place, lambda data=data: data, executable)  # type: ignore[misc]
        yield Entry(f"{new}/variant.json", lambda: _document({label: _properties(wheel.row)}))

    write_archive(folder / name, entries(), f"{new}/RECORD")
    return folder / name


def _is_part(wheel: HeldWheel, main: HeldWheel) -> bool:
    ours, whole = wheel.row, main.row
    return (
        not ours.label
        and ours.filename != whole.filename
        and Version(ours.version).public == Version(whole.version).public
        and (ours.platform, ours.cuda, ours.units, ours.features)
        == (whole.platform, whole.cuda, whole.units, whole.features)
        and {*ours.sass} < {*whole.sass}
    )


def _newest_of_each(wheels: Iterable[HeldWheel]) -> list[HeldWheel]:
    """Of each set of architectures the wheel that came last: an installer knows them by their label alone."""
    newest = {wheel.row.sass: wheel for wheel in sorted(wheels, key=lambda wheel: (wheel.row.uploaded, wheel.name))}
    return list(newest.values())


def _variant_name(wheel: HeldWheel, main: IndexedWheel) -> str:
    _, _, build, *tags = wheel.name.removesuffix(".whl").split("-")
    return "-".join([DISTRIBUTION, main.version, build, *tags, label_of(wheel.row.sass)]) + ".whl"


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


def _with_version(metadata: bytes, old: str, new: str) -> bytes:
    return metadata.replace(f"\nVersion: {old}\n".encode(), f"\nVersion: {new}\n".encode(), 1)
