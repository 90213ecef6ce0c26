"""Wheels over a library: flash-attn for torch, made with upstream's package, flashdepot-jax, and how any wheel is written."""

from __future__ import annotations

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
from flashdepot.files.disk import sha256_file
from flashdepot.files.user_files import new_file
from flashdepot.kernels import family_of
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.target import names_of
from flashdepot.model.wheel import IMPORTED, OLDEST_PYTHON, in_record
from flashdepot.resolve.own_wheel_name import DISTRIBUTION, dist_info, wheel_build, wheel_name, wheel_tag, wheel_version
from flashdepot.upstream import SourceTree

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a ZIP archive can name."""

_LEVEL = 6
"""Of 40 MB of compressed machine code level 9 makes a file 0.2 % smaller, in four times the time (2.2 against 0.6 s)."""

_UNIX = 3
"""``create_system``: whose permissions ``external_attr`` holds."""


class Entry(msgspec.Struct, frozen=True):
    """One file of a wheel: its name with ``/``, how to read its bytes, and whether it is a program or library."""

    name: str
    read: Callable[[], bytes]
    executable: bool = False

    @classmethod
    def of(cls, name: str, text: str) -> Entry:
        """A text."""
        return cls(name, text.encode)


class Wheel(msgspec.Struct, frozen=True):
    """A wheel file: its place, version and tag, the SHA-256 of its bytes, and their number."""

    path: Path
    version: str
    tag: str
    sha256: str
    size: int


def write_wheel(path: Path, entries: Iterable[Entry], info: str, *, stored: bool = False) -> Wheel:
    """Write a wheel, whole or not at all; its dist-info folder ``info`` says its version.

    :param stored: nothing is compressed, so that the bytes do not depend on Python's zlib.
    """
    rows, record = list[tuple[str, str, str]](), f"{info}/RECORD"
    kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with new_file(path.parent, path.name, "--out DIR") as file, zipfile.ZipFile(file, "w") as archive:
        for entry in entries:
            data = entry.read()
            archive.writestr(_info(entry.name, executable=entry.executable), data, kind, _LEVEL)
            rows.append((entry.name, f"sha256={in_record(hashlib.sha256(data).digest())}", str(len(data))))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        archive.writestr(_info(record), text.getvalue(), kind, _LEVEL)
    version, tag = info.removesuffix(".dist-info").partition("-")[2], "-".join(path.stem.rsplit("-", 3)[1:])
    return Wheel(path, version, tag, sha256_file(path), path.stat().st_size)


def field_lines(fields: Iterable[tuple[str, str]]) -> str:
    """The lines of a METADATA or WHEEL file."""
    return "".join(f"{name}: {value}\n" for name, value in fields)


def _info(name: str, *, executable: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = _UNIX
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return info


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
_LICENCES = "share/licenses/"

JAX_PACKAGE = "flashdepot_jax"
OLDEST_JAX = "0.4.35"
"""The oldest with the ffi_call of today."""


def build_wheel(manifest: Manifest, library: Path, trees: Mapping[str, SourceTree], folder: Path) -> Wheel:
    """Write the wheel of a library into a folder. One of the same name there has the same bytes, or is refused.

    The bytes are the same for the same library, source and flashdepot, wherever and whenever it is written, as long as
    Python's zlib compresses alike.

    Typical usage::

        wheel = build_wheel(manifest, depot.libraries.materialise(manifest), trees, Path("dist"))

    :param library: the folder of the library that ``manifest`` is of.
    :param trees: the source of each family in the library.
    :raises UsageError: when the source is another one, has no Python package, or no version; as :func:`write_wheel`.
    """
    for family, upstream in manifest.upstreams.items():
        tree = trees[family]
        if (tree.id.version, tree.id.digest) != (upstream.version, upstream.digest):
            raise UsageError(
                f"{tree.root} is {family} {tree.id}, and the library was made from {upstream}: "
                "a wheel must have both from one source.",
                hint="The source has changed: run the same command again.",
            )
    info = dist_info(manifest)
    return write_wheel(folder / wheel_name(manifest), _entries(manifest, library, trees, info), info)


def build_jax_wheel(manifest: Manifest, library: Path, folder: Path) -> Wheel:
    """Write the wheel flashdepot-jax, as above. Its version, build and tag are those of the library's flash-attn wheel."""
    path, info = folder.absolute() / jax_wheel_name(manifest), f"{JAX_PACKAGE}-{wheel_version(manifest)}.dist-info"
    return write_wheel(path, _jax_entries(manifest, library, info), info)


def jax_wheel_name(manifest: Manifest) -> str:
    """The file name of the wheel flashdepot-jax."""
    return f"{JAX_PACKAGE}{wheel_name(manifest).removeprefix(DISTRIBUTION)}"


def jax_modules() -> list[Path]:
    """The modules of flashdepot_jax: its own, and those that it shares with the module that torch's users import."""
    shared = (RUNTIME / f"{name}.py" for name in ("c_library", "layout"))
    return [*sorted((RUNTIME.parent / "jax").glob("*.py")), *shared]


def wheel_text(manifest: Manifest) -> str:
    """WHEEL: the format's version, who wrote it, each tag that a compressed one stands for, and the build tag."""
    python, abi, platforms = wheel_tag(manifest).split("-")
    made = [("Wheel-Version", "1.0"), ("Generator", f"flashdepot {manifest.flashdepot}"), ("Root-Is-Purelib", "false")]
    tags = [("Tag", f"{python}-{abi}-{platform}") for platform in platforms.split(".")]
    return field_lines([*made, *tags, ("Build", wheel_build(manifest))])


def _entries(manifest: Manifest, library: Path, trees: Mapping[str, SourceTree], info: str) -> list[Entry]:
    """All files but RECORD, in the order in which they are written: metadata last, as PEP 427 advises."""
    tree = trees[min(trees)]
    package = {
        name: tree.files
        for family, tree in trees.items()
        for name in family_of(family).python_files(tree.files)
        if not name.startswith(_NOT_OURS)
    }
    if not package:
        raise UsageError(
            f"{tree.root} has no Python package {PACKAGE}, which a wheel is made of.",
            hint="Restore the folder, or use a published version: --upstream 2.8.3",
        )
    reads: dict[str, Callable[[], bytes]] = {name: partial(files.read, name) for name, files in package.items()}
    if interface := reads.get(_INTERFACE):
        reads[_INTERFACE] = lambda: interface() + _ADDED
    found = [Entry(name, reads[name]) for name in sorted(package)]
    found += [Entry(f"{MODULE}/{path.name}", path.read_bytes) for path in sorted(RUNTIME.glob("*.py"))]
    licences = _licence_files(manifest, library, info)
    if tree.files.has("AUTHORS"):
        licences.append(Entry(f"{info}/licenses/{PACKAGE}/AUTHORS", partial(tree.files.read, "AUTHORS")))
    system = ("Classifier", f"Operating System :: {_CLASSIFIERS[manifest.platform.system]}")
    before = [("Name", DISTRIBUTION), ("Version", wheel_version(manifest)), *_FIELDS, system]
    described = _described(before, manifest, licences, [("Description-Content-Type", "text/markdown")])
    metadata = f"{described}\n{tree.files.text('README.md')}"
    return [*found, _shared_library(manifest, library, MODULE), *_dist_info(manifest, info, licences, metadata)]


def _jax_entries(manifest: Manifest, library: Path, info: str) -> Iterator[Entry]:
    for path in jax_modules():
        yield Entry(f"{JAX_PACKAGE}/{path.name}", path.read_bytes)
    yield _shared_library(manifest, library, JAX_PACKAGE)
    before = [
        ("Name", canonicalize_name(JAX_PACKAGE)),
        ("Version", wheel_version(manifest)),
        ("Summary", "FlashAttention for JAX, over a library that flashdepot compiled; no torch"),
    ]
    after = [("Requires-Python", ">=3.10"), ("Requires-Dist", f"jax>={OLDEST_JAX}")]
    licences = _licence_files(manifest, library, info)
    yield from _dist_info(manifest, info, licences, _described(before, manifest, licences, after))


def _described(
    before: Sequence[tuple[str, str]], manifest: Manifest, licences: Sequence[Entry], after: Sequence[tuple[str, str]]
) -> str:
    """METADATA: fields, with the licences of all that is inside among them (Metadata 2.4, PEP 639)."""
    files = [("License-File", entry.name.partition("/licenses/")[2]) for entry in licences]
    expression = ("License-Expression", licence_expression(manifest))
    return field_lines([("Metadata-Version", "2.4"), *before, expression, *files, *after])


def _dist_info(manifest: Manifest, info: str, licences: Sequence[Entry], metadata: str) -> Iterator[Entry]:
    """Licences and texts; the library's manifest, which says what it was made from; and the bill of materials (PEP 770)."""
    distribution, version = info.partition("-")[0], wheel_version(manifest)
    name = canonicalize_name(distribution)
    yield from licences
    yield Entry.of(f"{info}/METADATA", metadata)
    yield Entry.of(f"{info}/WHEEL", wheel_text(manifest))
    yield Entry.of(f"{info}/flashdepot.json", json.dumps(manifest.to_json(), indent=2, sort_keys=True) + "\n")
    url = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    yield Entry(f"{info}/sboms/{distribution}.cdx.json", lambda: sbom(manifest, name, version, url))


def _shared_library(manifest: Manifest, library: Path, package: str) -> Entry:
    """The library that the modules of a package open: in its folder ``lib``."""
    shared = PurePosixPath("lib/shared", names_of(manifest.platform.system).shared)
    file = next(file for file in manifest.files if file.path == str(shared))
    return _library_file(f"{package}/lib/{shared.name}", library, file, executable=True)


def _licence_files(manifest: Manifest, library: Path, info: str) -> list[Entry]:
    return [
        _library_file(f"{info}/licenses/{file.path.removeprefix(_LICENCES)}", library, file)
        for file in sorted(manifest.files, key=lambda file: file.path)
        if file.path.startswith(_LICENCES)
    ]


def _library_file(name: str, library: Path, file: ManifestFile, *, executable: bool = False) -> Entry:
    """A file of the library, whose bytes are hashed when they go into the wheel."""

    def read() -> bytes:
        data = (library / file.path).read_bytes()
        if (actual := hashlib.sha256(data).hexdigest()) != file.digest:
            raise IntegrityError(
                f"{library / file.path} is damaged: expected SHA-256 {file.digest}, found {actual}.",
                hint="Run the same command again: what is damaged is made again.",
            )
        return data

    return Entry(name, read, executable)
