"""What goes into a wheel, and where."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.families import family_of
from flashdepot.model.library_names import names_of
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.own_wheel_name import DISTRIBUTION, dist_info
from flashdepot.upstream import SourceTree
from flashdepot.wheel.metadata import metadata_text, origin_text, sbom_text, wheel_text

PACKAGE = "flash_attn"
MODULE = "flash_attn_2_cuda"
RUNTIME = Path(__file__).parent / "runtime"

_INTERFACE = f"{PACKAGE}/flash_attn_interface.py"
_ADDED = b"""
# Added by flashdepot: calls that torch's dispatcher has nothing to do for skip it. flash_attn_2_cuda/eager.py says when.
from flash_attn_2_cuda import eager as _eager
_eager.shorten(globals())
"""
"""The only change of upstream's package."""

_NOT_OURS = f"{PACKAGE}/cute/"
"""The distribution flash-attn-4 has these files, and two distributions with one file break each other."""

_LICENCES = "share/licenses/"


class Entry(msgspec.Struct, frozen=True):
    """One file of a wheel: its name with ``/``, how to read its bytes, and whether it is a program or library."""

    name: str
    read: Callable[[], bytes]
    executable: bool = False


def entries(manifest: Manifest, library: Path, trees: Mapping[str, SourceTree]) -> list[Entry]:
    """All files of a wheel but RECORD, in the order in which they are written: metadata last, as PEP 427 advises.

    :raises UsageError: when the source tree has no Python package.
    """
    tree = trees[min(trees)]
    package = {
        name: tree.files
        for family, tree in trees.items()
        for name in family_of(family).python_files(tree.files)
        if not name.startswith(_NOT_OURS)
    }
    if not package:
        raise UsageError(
            f"{tree.root} has no Python package {PACKAGE}, and a wheel is made of it.",
            hint="Restore the folder, or use a published version: --upstream 2.8.3",
        )
    reads = {name: partial(files.read, name) for name, files in package.items()}
    reads |= {name: partial(_shortened, reads[name]) for name in reads if name == _INTERFACE}
    found = [Entry(name, reads[name]) for name in sorted(package)]
    found += [Entry(f"{MODULE}/{path.name}", path.read_bytes) for path in sorted(RUNTIME.glob("*.py"))]
    return [*found, *shared_library(manifest, library, MODULE), *_metadata(manifest, library, tree)]


def shared_library(manifest: Manifest, library: Path, package: str) -> Iterator[Entry]:
    """The library that the modules of a package open: in its folder ``lib``."""
    shared = f"lib/shared/{names_of(manifest.platform.system).shared}"
    for file in manifest.files:
        if file.path == shared:
            yield _library_file(f"{package}/lib/{PurePosixPath(shared).name}", library, file, executable=True)


def licence_files(manifest: Manifest, library: Path, info: str) -> list[Entry]:
    """The licences of all that a library is made of, for the dist-info folder ``info`` (PEP 639)."""
    return [
        _library_file(f"{info}/licenses/{file.path.removeprefix(_LICENCES)}", library, file)
        for file in sorted(manifest.files, key=lambda file: file.path)
        if file.path.startswith(_LICENCES)
    ]


def _metadata(manifest: Manifest, library: Path, tree: SourceTree) -> Iterator[Entry]:
    folder = dist_info(manifest)
    licences = licence_files(manifest, library, folder)
    if tree.files.has("AUTHORS"):
        licences.append(Entry(f"{folder}/licenses/{PACKAGE}/AUTHORS", partial(tree.files.read, "AUTHORS")))
    yield from licences
    names = [entry.name.removeprefix(f"{folder}/licenses/") for entry in licences]
    yield _text(f"{folder}/METADATA", metadata_text(manifest, names, tree.files.text("README.md")))
    yield _text(f"{folder}/WHEEL", wheel_text(manifest))
    yield _text(f"{folder}/flashdepot.json", origin_text(manifest))
    yield Entry(f"{folder}/sboms/{DISTRIBUTION}.cdx.json", lambda: sbom_text(manifest))


def _shortened(read: Callable[[], bytes]) -> bytes:
    return read() + _ADDED


def _library_file(name: str, library: Path, file: ManifestFile, *, executable: bool = False) -> Entry:
    """A file of the library, whose bytes are hashed when they go into the wheel."""

    def read() -> bytes:
        data = (library / file.path).read_bytes()
        if (actual := hashlib.sha256(data).hexdigest()) != file.digest:
            raise IntegrityError(
                f"{library / file.path} is damaged: expected SHA-256 {file.digest}, found {actual}.",
                hint="Run the same command again: what is damaged is made anew.",
            )
        return data

    return Entry(name, read, executable)


def _text(name: str, text: str) -> Entry:
    return Entry(name, text.encode)
