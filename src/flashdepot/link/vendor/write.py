"""A library into a project's own tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.export import export
from flashdepot.errors import UsageError
from flashdepot.link.vendor.attributes import attribute_lines, with_lines
from flashdepot.link.vendor.files import examine_files, examine_manifest, is_disguised
from flashdepot.link.vendor.index import INDEX_NAME, VendoredTarget, VendorIndex, read_index
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.system.user_files import require_no_links, rewrite_file

ATTRIBUTES_NAME = ".gitattributes"
_ELSEWHERE = "flashdepot vendor DIR"


class Vendored(msgspec.Struct, frozen=True):
    """Where a library went; ``changed`` is false when all of it was there already."""

    directory: Path
    folder: Path
    changed: bool


def vendor(manifest: Manifest, source: Callable[[ManifestFile], Path], directory: Path) -> Vendored:
    """Put a library into its target's folder of ``directory``, beside those of other targets.

    Everything else in ``directory`` stays. The index is written last, so that whatever is killed on the way, the next
    run ends as this one would have; files that are right already are not touched, nor are their times.

    :param source: where the bytes of a regular file are.
    :raises UsageError: when a link or something else of the user's is in the way; nothing is touched then.
    :raises IntegrityError: when the index there is damaged, or the bytes are not what the manifest says.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  (as typed, through whatever links)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file, and libraries go into a folder.", hint=f"Name another: {_ELSEWHERE}")
    text = manifest_text(manifest)
    target = VendoredTarget.of(manifest, hashlib.sha256(text).hexdigest())
    folder = directory / target.folder
    require_no_links(directory, (ATTRIBUTES_NAME, INDEX_NAME, target.folder), _ELSEWHERE)
    index = read_index(directory) or VendorIndex()
    changed = examine_manifest(folder, target.manifest_digest) is not None or bool(examine_files(folder, manifest))
    if changed:
        export(manifest, source, directory, inside=target.folder, elsewhere=_ELSEWHERE, disguised=is_disguised)
    lines = attribute_lines(target.folder)
    changed |= rewrite_file(directory, ATTRIBUTES_NAME, lambda old: with_lines(old, lines), _ELSEWHERE)
    changed |= rewrite_file(directory, INDEX_NAME, lambda _old: index.with_target(target).text(), _ELSEWHERE)
    return Vendored(directory, folder, changed)
