"""A folder of vendored libraries: ``vendor.json``, which lists them, putting one more there, and what git does to its files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from flashdepot.binary.window import LFS_MAGIC, read_lfs_pointer
from flashdepot.depot.export import export
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_of_kind
from flashdepot.files.user_files import require_no_links, rewrite_file
from flashdepot.model.codec import is_digest, plain, read_document
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.process.run import run

_LFS = "filter=lfs diff=lfs merge=lfs -text"


def attribute_lines(folder: str) -> tuple[str, ...]:
    """The lines for one target's folder, with paths as from the file next to it.

    ``-text`` comes first and for all: a header whose line endings were changed by a checkout has another digest.
    """
    return (f"/{folder}/** -text", f"/{folder}/lib/shared/* {_LFS}", f"/{folder}/lib/static/* {_LFS}")


def with_lines(existing: bytes, wanted: tuple[str, ...]) -> bytes:
    """The file's bytes with the wanted lines added at its end, where they count most; those it has stay where they are.

    Its own lines, comments, line endings and order are kept byte for byte.
    """
    ending = b"\r\n" if b"\r\n" in existing else b"\n"
    have = {b" ".join(line.split()) for line in existing.splitlines()}
    missing = [line.encode() for line in wanted if b" ".join(line.encode().split()) not in have]
    if not missing:
        return existing
    start = existing if not existing or existing.endswith(b"\n") else existing + ending
    return start + b"".join(line + ending for line in missing)


def work_tree(folder: Path) -> Path | None:
    """The root of the repository that a folder is in, by its ``.git``; ``None`` outside of one."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100
    return next((p for p in (absolute, *absolute.parents) if (p / ".git").exists()), None)


def ignored(root: Path, paths: Sequence[Path]) -> list[str]:
    """Those of the paths that a ``git add`` would leave out, as git names them; empty without git."""
    try:
        done = run(["git", "-C", str(root), "check-ignore", "--no-index", "--", *map(str, paths)], timeout=30)
    except FlashdepotError:
        return []
    return done.stdout.splitlines() if done.status == 0 else []


def has_lfs_filter(root: Path) -> bool | None:
    """Whether ``git lfs install`` was run for this user or repository; ``None`` without git."""
    try:
        return run(["git", "-C", str(root), "config", "--get", "filter.lfs.clean"], timeout=30).status == 0
    except FlashdepotError:
        return None


def pull_command(directory: Path, folder: str) -> str:
    """The command that fetches the files of one target's pointers. Git LFS takes paths from the root."""
    place = Path(os.path.abspath(directory)) / folder  # noqa: PTH100
    root = work_tree(directory)
    inside = place.relative_to(root).as_posix() if root else folder
    return f'git lfs install && git lfs pull --include "{inside}/**" --exclude ""'


class FaultKind(str, Enum):
    """What is wrong with a file."""

    POINTER = "Git LFS pointer"
    MISSING = "missing"
    CHANGED = "changed"
    LINE_ENDINGS = "line endings"


class Fault(msgspec.Struct, frozen=True):
    """A file that is not what the manifest says: its path in the target's folder, and what was found."""

    path: str
    kind: FaultKind = msgspec.field(name="fault")
    seen: str


_TEXT_LIMIT = 1 << 20
"""Bytes up to which a file is checked for being a pointer or a text: a library is larger, usually."""


def examine_manifest(folder: Path, digest: str) -> Fault | None:
    """What is wrong with the manifest's own bytes."""
    return _examine_regular(folder / MANIFEST_NAME, ManifestFile(MANIFEST_NAME, digest, -1))


def examine_files(folder: Path, manifest: Manifest) -> tuple[Fault, ...]:
    """What is wrong with each file that the manifest names; reads all of their bytes."""
    found = (
        _examine_link(folder / file.path, file) if file.link else _examine_regular(folder / file.path, file)
        for file in manifest.files
    )
    return tuple(fault for fault in found if fault is not None)


def unlisted(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """Files in the folder that are not the library's, by their paths in it."""
    listed = {MANIFEST_NAME, *(file.path for file in manifest.files)}
    held = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())
    return tuple(sorted(path for path in held if path not in listed))


def is_disguised(data: bytes, digests: frozenset[str]) -> bool:
    """Whether bytes are what version control makes of a file with one of some digests: a pointer, or CRLF."""
    pointer = read_lfs_pointer(data) if data.startswith(LFS_MAGIC) else None
    return (pointer is not None and pointer.oid in digests) or _sha256(data.replace(b"\r\n", b"\n")) in digests


def _examine_link(path: Path, file: ManifestFile) -> Fault | None:
    """A symbolic link, or the text that git writes in its place where the file system has none."""
    if path.is_symlink():
        target = str(path.readlink())
    elif path.is_file() and path.stat().st_size < _TEXT_LIMIT:
        target = path.read_text("utf-8", "replace")
    else:
        return Fault(file.path, FaultKind.MISSING, f"no symbolic link to {file.link}")
    return None if target == file.link else Fault(file.path, FaultKind.CHANGED, f"links to '{target}', not {file.link}")


def _examine_regular(path: Path, file: ManifestFile) -> Fault | None:
    if path.is_symlink():
        return Fault(file.path, FaultKind.CHANGED, f"a symbolic link to {path.readlink()}, not a file")
    if not path.is_file():
        return Fault(file.path, FaultKind.MISSING, "not there" if not path.exists() else "not a regular file")
    try:
        size = path.stat().st_size
        if sha256_file(path) == file.digest:
            return None
        head = path.read_bytes() if size < _TEXT_LIMIT else b""
    except OSError as error:
        return Fault(file.path, FaultKind.MISSING, f"cannot be read: {error.strerror}")
    if head.startswith(LFS_MAGIC) and (pointer := read_lfs_pointer(head)) is not None:
        seen = f"a pointer to the right file, of {pointer.size} bytes, which is not here"
        if pointer.oid != file.digest:
            seen = f"a pointer to another file: SHA-256 {pointer.oid}, and the manifest has {file.digest}"
        return Fault(file.path, FaultKind.POINTER, seen)
    if head and _sha256(head.replace(b"\r\n", b"\n")) == file.digest:
        return Fault(file.path, FaultKind.LINE_ENDINGS, "a checkout turned its line endings into CRLF")
    seen = f"cut off: {size} bytes of {file.size}" if size < file.size else "its SHA-256 is not the manifest's"
    return Fault(file.path, FaultKind.CHANGED, seen)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


INDEX_NAME = "vendor.json"
INDEX_KIND = "vendored libraries"
INDEX_SCHEMA = 1


class VendoredTarget(msgspec.Struct, frozen=True):
    """One library: its folder next to the index, the SHA-256 of its manifest, and what it is for."""

    folder: str
    manifest_digest: str = msgspec.field(name="manifest")
    recipe_key: str
    upstream: str
    platform: Platform
    cuda: Version
    sass: tuple[Architecture, ...]

    def __post_init__(self) -> None:
        if self.folder in {"", ".", ".."} or any(character in self.folder for character in "/\\:\0"):
            raise ValueError(f"'{self.folder}' is not the name of a folder next to it")
        if not is_digest(self.manifest_digest):
            raise ValueError(f"'{self.manifest_digest}' is not a SHA-256")

    @classmethod
    def of(cls, manifest: Manifest, manifest_digest: str) -> VendoredTarget:
        """The entry of a library; its folder is called ``linux-x86_64-cu13-sm80-90``."""
        return cls(
            folder=f"{manifest.platform}-cu{manifest.toolchain.cuda.major}-sm{'-'.join(map(str, manifest.sass))}",
            manifest_digest=manifest_digest,
            recipe_key=manifest.recipe_key,
            upstream=manifest.upstream.version,
            platform=manifest.platform,
            cuda=manifest.toolchain.cuda,
            sass=manifest.sass,
        )


class _Index(msgspec.Struct, frozen=True):
    targets: tuple[VendoredTarget, ...]

    def __post_init__(self) -> None:
        if len({target.folder for target in self.targets}) != len(self.targets):
            raise ValueError("it names a folder twice")


def index_text(there: Sequence[VendoredTarget], target: VendoredTarget) -> bytes:
    """The index of some targets with one added, or in place of the one in the same folder; by the names of the folders."""
    targets = sorted((*(t for t in there if t.folder != target.folder), target), key=lambda t: t.folder)
    document = {"schema": INDEX_SCHEMA, "kind": INDEX_KIND, "targets": plain(targets)}
    return (json.dumps(document, indent=2) + "\n").encode()


def read_index(directory: Path) -> tuple[VendoredTarget, ...] | None:
    """The targets in the index of a folder, ``None`` where there is none."""
    path = directory / INDEX_NAME
    hint = f"Restore it from version control, or remove it and write it again: flashdepot vendor {directory}"
    other = UsageError(
        f"{path} was not written by flashdepot: it does not say that it is of {INDEX_KIND}.",
        hint="Name another folder: flashdepot vendor DIR",
    )
    if (data := read_of_kind(path, INDEX_KIND, other, hint)) is None:
        return None
    try:
        return read_document(data, _Index, INDEX_SCHEMA).targets
    except ValueError as error:
        raise IntegrityError(f"{path} cannot be used: {error}.", hint=hint) from error


ATTRIBUTES_NAME = ".gitattributes"
_CMAKE = Path(__file__).with_name("vendor_cmake")
_CMAKE_FILES = ("FlashAttentionFolder.cmake", "FlashAttentionConfig.cmake", "FlashAttentionConfigVersion.cmake")
"""What CMake reads of a folder of several libraries."""
_ELSEWHERE = "flashdepot vendor DIR"


class Vendored(msgspec.Struct, frozen=True):
    """Where a library went; ``changed`` is false when all of it was there already."""

    directory: Path
    folder: Path
    changed: bool


def vendor(manifest: Manifest, source: Callable[[ManifestFile], Path], directory: Path) -> Vendored:
    """Put a library into its target's folder of ``directory``, next to those of other targets.

    Everything else in ``directory`` stays. The index is written last, so that whatever is killed on the way, the next
    run ends as this one would have; files that are right already are not touched, and keep their times.

    :param source: where the bytes of a regular file are.
    :raises UsageError: when a link or something else of the user's is in the way; nothing is touched then.
    """
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  (as typed, through whatever links)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file, and libraries go into a folder.", hint=f"Name another: {_ELSEWHERE}")
    text = manifest_text(manifest)
    target = VendoredTarget.of(manifest, hashlib.sha256(text).hexdigest())
    folder = directory / target.folder
    require_no_links(directory, (ATTRIBUTES_NAME, INDEX_NAME, *_CMAKE_FILES, target.folder), _ELSEWHERE)
    there = read_index(directory) or ()
    changed = examine_manifest(folder, target.manifest_digest) is not None or bool(examine_files(folder, manifest))
    if changed:
        export(manifest, source, directory, inside=target.folder, elsewhere=_ELSEWHERE, disguised=is_disguised)
    lines = attribute_lines(target.folder)
    changed |= rewrite_file(directory, ATTRIBUTES_NAME, lambda old: with_lines(old, lines), _ELSEWHERE)
    for name in _CMAKE_FILES:
        shipped = (_CMAKE / name).read_bytes()
        changed |= rewrite_file(directory, name, lambda _old, new=shipped: new, _ELSEWHERE)  # type: ignore[misc]
    changed |= rewrite_file(directory, INDEX_NAME, lambda _old: index_text(there, target), _ELSEWHERE)
    return Vendored(directory, folder, changed)
