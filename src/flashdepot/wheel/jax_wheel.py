"""The wheel flashdepot-jax: attention for JAX over the same library, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashdepot.build.sbom import licence_expression, sbom
from flashdepot.files.atomic import sha256_file
from flashdepot.model.manifest import Manifest
from flashdepot.resolve.own_wheel_name import wheel_build, wheel_tag, wheel_version
from flashdepot.wheel.builder import (
    RUNTIME,
    Entry,
    Wheel,
    licence_files,
    origin_text,
    shared_library,
    wheel_text,
    write_archive,
)

NAME = "flashdepot-jax"
PACKAGE = "flashdepot_jax"
_SOURCES = RUNTIME.parent / "jax"
_SHARED = ("layout.py", "numbers.py")
"""What it has in common with the module that torch's users import."""

OLDEST_JAX = "0.6"
"""The oldest whose shard_map, custom_vmap and custom_partitioning work together over a call of XLA's FFI."""


def build_jax_wheel(manifest: Manifest, library: Path, folder: Path) -> Wheel:
    """Write the wheel into a folder. Its version, build and tag are those of the library's flash-attn wheel.

    :param library: the folder of the library that ``manifest`` is of.
    :raises UsageError: when something else has the wheel's name.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    version, tag = wheel_version(manifest), wheel_tag(manifest)
    info = f"{PACKAGE}-{version}.dist-info"
    path = folder.absolute() / f"{PACKAGE}-{version}-{wheel_build(manifest)}-{tag}.whl"
    write_archive(path, _entries(manifest, library, info), f"{info}/RECORD")
    return Wheel(path, version, tag, sha256_file(path), path.stat().st_size)


def _entries(manifest: Manifest, library: Path, info: str) -> Iterator[Entry]:
    for path in (*sorted(_SOURCES.glob("*.py")), *(RUNTIME / name for name in _SHARED)):
        yield Entry(f"{PACKAGE}/{path.name}", path.read_bytes)
    yield from shared_library(manifest, library, PACKAGE)
    licences = licence_files(manifest, library, info)
    yield from licences
    version = wheel_version(manifest)
    metadata = [
        ("Metadata-Version", "2.4"),
        ("Name", NAME),
        ("Version", version),
        ("Summary", "FlashAttention for JAX, over a library that flashdepot compiled; no torch"),
        ("License-Expression", licence_expression(manifest)),
        *(("License-File", entry.name.removeprefix(f"{info}/licenses/")) for entry in licences),
        ("Requires-Python", ">=3.10"),
        ("Requires-Dist", f"jax>={OLDEST_JAX}"),
    ]
    texts = {
        "METADATA": "".join(f"{key}: {value}\n" for key, value in metadata),
        "WHEEL": wheel_text(manifest),
        "flashdepot.json": origin_text(manifest),
    }
    for name, text in texts.items():
        yield Entry(f"{info}/{name}", text.encode)
    url = f"pkg:pypi/{NAME}@{version.replace('+', '%2B')}"
    yield Entry(f"{info}/sboms/{PACKAGE}.cdx.json", lambda: sbom(manifest, NAME, version, url))
