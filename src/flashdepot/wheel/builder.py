"""A library and its source trees to a wheel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import dist_info, wheel_name, wheel_tag, wheel_version
from flashdepot.system.files import sha256_file
from flashdepot.upstream import SourceTree
from flashdepot.wheel.archive import write_archive
from flashdepot.wheel.contents import entries


class Wheel(msgspec.Struct, frozen=True):
    """A wheel file: its place, version and tag, the SHA-256 of its bytes, and their number."""

    path: Path
    version: str
    tag: str
    sha256: str
    size: int


def build_wheel(manifest: Manifest, library: Path, trees: Mapping[str, SourceTree], folder: Path) -> Wheel:
    """Write the wheel of a library into a folder. One of the same name there has the same bytes, or is refused.

    The bytes are the same for the same library, source and flashdepot, wherever and whenever it is written, as long as
    Python's zlib compresses alike.

    Typical usage::

        wheel = build_wheel(manifest, depot.materialise(manifest), trees, Path("dist"))

    :param library: the folder of the library that ``manifest`` is of.
    :param trees: the source of each family in the library.
    :raises UsageError: when the source is another one, has no Python package, or no version, or when something else has
        the wheel's name.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    for family, upstream in manifest.upstreams.items():
        tree = trees[family]
        if (tree.id.version, tree.id.digest) != (upstream.version, upstream.digest):
            raise UsageError(
                f"{tree.root} is {family} {tree.id}, and the library was made from {upstream}: "
                "a wheel must have both from one source.",
                hint="The source was changed meanwhile: run the same command again.",
            )
    path = folder / wheel_name(manifest)
    write_archive(path, entries(manifest, library, trees), f"{dist_info(manifest)}/RECORD")
    return Wheel(path, wheel_version(manifest), wheel_tag(manifest), sha256_file(path), path.stat().st_size)
