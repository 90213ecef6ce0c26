"""A library and its source trees to a wheel whose bytes follow from its content only."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec
from packaging.utils import canonicalize_name

from flashdepot.build.sbom import licence_expression, sbom
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.atomic import sha256_file
from flashdepot.files.user_files import new_file
from flashdepot.kernels import family_of
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.target import names_of
from flashdepot.model.wheel import IMPORTED, OLDEST_PYTHON
from flashdepot.resolve.own_wheel_name import DISTRIBUTION, dist_info, wheel_build, wheel_name, wheel_tag, wheel_version
from flashdepot.upstream import SourceTree

_FIELDS = (
    ("Summary", "Flash Attention: Fast and Memory-Efficient Exact Attention"),
    ("Home-page", "https://github.com/Dao-AILab/flash-attention"),
    ("Author", "Tri Dao"),
    ("Author-email", "tri@tridao.me"),
    ("Classifier", "Programming Language :: Python :: 3"),
    ("Requires-Python", f">={OLDEST_PYTHON}"),
    *(("Requires-Dist", name) for name in IMPORTED),
)
"""What upstream's setup.py says, the same in every version that flashdepot knows."""

_CLASSIFIERS = {"linux": "Unix", "windows": "Microsoft :: Windows"}


def metadata_text(manifest: Manifest, licence_files: Sequence[str], readme: str) -> str:
    """METADATA: upstream's, with our version and the licences of all that is inside (Metadata 2.4, PEP 639)."""
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", DISTRIBUTION),
        ("Version", wheel_version(manifest)),
        *_FIELDS,
        ("Classifier", f"Operating System :: {_CLASSIFIERS[manifest.platform.system]}"),
        ("License-Expression", licence_expression(manifest)),
        *(("License-File", name) for name in licence_files),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + readme


def wheel_text(manifest: Manifest) -> str:
    """WHEEL: the format's version, who wrote it, each tag and the build tag."""
    return (
        "Wheel-Version: 1.0\n"
        f"Generator: flashdepot {manifest.flashdepot}\n"
        "Root-Is-Purelib: false\n"
        f"{''.join(f'Tag: {tag}{chr(10)}' for tag in _each(wheel_tag(manifest)))}"
        f"Build: {wheel_build(manifest)}\n"
    )


def _each(tag: str) -> list[str]:
    """The tags that a compressed one stands for."""
    python, abi, platforms = tag.split("-")
    return [f"{python}-{abi}-{platform}" for platform in platforms.split(".")]


def origin_text(manifest: Manifest) -> str:
    """flashdepot.json: the library's manifest, which says what it was made from, by what and how."""
    data = manifest.to_json()
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def sbom_text(manifest: Manifest) -> bytes:
    """The bill of materials of the wheel (PEP 770)."""
    version = wheel_version(manifest)
    name = canonicalize_name(DISTRIBUTION)
    return sbom(manifest, name, version, f"pkg:pypi/{name}@{version.replace('+', '%2B')}")


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


_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a ZIP archive can name."""

_LEVEL = 6
"""Of 40 MB of compressed machine code level 9 makes a file 0.2 % smaller, in four times the time (2.2 against 0.6 s)."""

_UNIX = 3
"""``create_system``: whose permissions ``external_attr`` holds."""


def write_archive(path: Path, entries: Iterable[Entry], record: str) -> None:
    """Write a wheel, whole or not at all.

    :param record: the name of its RECORD, which is written last.
    :raises UsageError: when something else has that name.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    rows: list[tuple[str, str, str]] = []
    with new_file(path.parent, path.name, "--out DIR") as file, zipfile.ZipFile(file, "w") as archive:
        for entry in entries:
            data = entry.read()
            archive.writestr(_info(entry.name, executable=entry.executable), data, compresslevel=_LEVEL)
            rows.append((entry.name, _digest(data), str(len(data))))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        archive.writestr(_info(record), text.getvalue(), compresslevel=_LEVEL)


def _info(name: str, *, executable: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return info


def _digest(data: bytes) -> str:
    """A RECORD entry's digest: URL-safe base64 without padding (PEP 376, PEP 427)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


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

        wheel = build_wheel(manifest, depot.libraries.materialise(manifest), trees, Path("dist"))

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
