"""The files of a vendored library: whether they are what its manifest says, and what git makes of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import msgspec

from flashdepot.binary.window import LFS_MAGIC, read_lfs_pointer
from flashdepot.errors import FlashdepotError
from flashdepot.files.atomic import sha256_file
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
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
    """The command that fetches the files behind the pointers of one target. Git LFS takes paths from the root."""
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
