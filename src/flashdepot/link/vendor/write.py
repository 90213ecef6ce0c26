"""A library into a project's own tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.export import export
from flashdepot.errors import UsageError
from flashdepot.link.vendor.attributes import attribute_lines, with_lines
from flashdepot.link.vendor.files import examine_files, examine_manifest
from flashdepot.link.vendor.index import INDEX_NAME, VendoredTarget, VendorIndex, read_index
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.system.files import disk_errors, write_atomic

ATTRIBUTES_NAME = ".gitattributes"
_ELSEWHERE = "flashdepot vendor DIR"


@dataclass(frozen=True)
class Vendored:
    """Where a library went; ``changed`` is false when all of it was there already."""

    directory: Path
    folder: Path
    changed: bool


def vendor(manifest: Manifest, source: Callable[[ManifestFile], Path], directory: Path) -> Vendored:
    """Put a library into its target's folder of ``directory``, beside those of other targets.

    Everything else in ``directory`` stays. The index is written last, so that whatever is killed on the way, the next
    run ends as this one would have; files that are right already are not touched, nor are their times.

    :param source: where the bytes of a regular file are.
    :raises UsageError: when something else of the user's is in the way; nothing is touched then.
    :raises IntegrityError: when the index there is damaged, or the bytes are not what the manifest says.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  (as typed, through whatever links)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file, and libraries go into a folder.", hint=f"Name another: {_ELSEWHERE}")
    index = read_index(directory) or VendorIndex()
    text = manifest_text(manifest)
    target = VendoredTarget.of(manifest, hashlib.sha256(text).hexdigest())
    folder = directory / target.folder
    changed = examine_manifest(folder, target.manifest_digest) is not None or bool(examine_files(folder, manifest))
    if changed:
        export(manifest, source, folder, elsewhere=_ELSEWHERE)
    with disk_errors(directory):
        changed |= _write(directory / ATTRIBUTES_NAME, lambda old: with_lines(old, attribute_lines(target.folder)))
        changed |= _write(directory / INDEX_NAME, lambda _old: index.with_target(target).text())
    return Vendored(directory, folder, changed)


def _write(path: Path, change: Callable[[bytes], bytes]) -> bool:
    """Rewrite a file if its bytes change, and return whether they did."""
    old = path.read_bytes() if path.is_file() else b""
    new = change(old)
    if new == old:
        return False
    write_atomic(path, new)
    return True
