"""What goes into a wheel, and where."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
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
        path.relative_to(tree.root).as_posix(): path
        for family, tree in trees.items()
        for path in family_of(family).python_files(tree.root)
    }
    if not package:
        raise UsageError(
            f"{tree.root} has no Python package {PACKAGE}, and a wheel is made of it.",
            hint="Restore the folder, or use a published version: --upstream 2.8.3",
        )
    found = [_file(name, path) for name, path in sorted(package.items())]
    found += [_file(f"{MODULE}/{path.name}", path) for path in sorted(RUNTIME.glob("*.py"))]
    shared = f"lib/shared/{names_of(manifest.platform.system).shared}"
    found += [
        _library_file(f"{MODULE}/lib/{PurePosixPath(shared).name}", library, file, executable=True)
        for file in manifest.files
        if file.path == shared
    ]
    return [*found, *_metadata(manifest, library, tree)]


def _metadata(manifest: Manifest, library: Path, tree: SourceTree) -> Iterator[Entry]:
    folder = dist_info(manifest)
    licences = [
        _library_file(f"{folder}/licenses/{file.path.removeprefix(_LICENCES)}", library, file)
        for file in sorted(manifest.files, key=lambda file: file.path)
        if file.path.startswith(_LICENCES)
    ]
    if (authors := tree.root / "AUTHORS").is_file():
        licences.append(_file(f"{folder}/licenses/{PACKAGE}/AUTHORS", authors))
    readme = tree.root / "README.md"
    description = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    yield from licences
    names = [entry.name.removeprefix(f"{folder}/licenses/") for entry in licences]
    yield _text(f"{folder}/METADATA", metadata_text(manifest, names, description))
    yield _text(f"{folder}/WHEEL", wheel_text(manifest))
    yield _text(f"{folder}/flashdepot.json", origin_text(manifest))
    yield Entry(f"{folder}/sboms/{DISTRIBUTION}.cdx.json", lambda: sbom_text(manifest))


def _file(name: str, path: Path, *, executable: bool = False) -> Entry:
    return Entry(name, path.read_bytes, executable)


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
