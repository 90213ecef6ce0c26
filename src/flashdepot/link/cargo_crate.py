"""A ``-sys`` crate around a library, complete and offline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flashdepot.depot.export import export
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.link.c_header import parse_header
from flashdepot.link.library import LinkableLibrary
from flashdepot.link.rust_bindings import rust_bindings
from flashdepot.system.files import disk_errors, write_atomic

CRATE = "flashattention-sys"

_TEMPLATES = Path(__file__).parent / "crate"
_PLACES = {
    "Cargo.toml.in": "Cargo.toml",
    "README.md.in": "README.md",
    "build.rs": "build.rs",
    "lib.rs": "src/lib.rs",
    "contents.rs": "tests/contents.rs",
}
_ELSEWHERE = "flashdepot link cargo DIR"
_SIGNATURE = "# Written by 'flashdepot link cargo'."


def write_crate(library: LinkableLibrary, folder: Path) -> Path:
    """Write the crate with the library inside it, and return its folder, absolute.

    The folder is new, empty, or a crate that was written here before; other files in it stay. Everything in it can be
    moved and put under version control.

    :raises UsageError: when the folder holds something else.
    :raises IntegrityError: when the library's files are not what its manifest says, or its header cannot be read.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    folder = folder.absolute()
    _require_ours(folder)
    texts = crate_texts(library.manifest.upstream.version, _header_text(library))
    with disk_errors(folder):
        write_atomic(folder / "Cargo.toml", texts["Cargo.toml"].encode())  # first: it marks the folder as ours
        export(library.manifest, library.source, folder / "library", elsewhere=_ELSEWHERE)
        for place, text in texts.items():
            write_atomic(folder / place, text.encode())
    return folder


def crate_texts(upstream_version: str, header: str) -> Mapping[str, str]:
    """The crate's own files by their place, for a version of flash-attn and the header of its library.

    :raises IntegrityError: when the header has something that no binding is known for.
    """
    values = {"VERSION": crate_version(upstream_version), "UPSTREAM_VERSION": upstream_version}
    texts = {}
    for template, place in _PLACES.items():
        text = (_TEMPLATES / template).read_text("utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        texts[place] = text
    texts["src/bindings.rs"] = rust_bindings(parse_header(header))
    return texts


def crate_version(upstream_version: str) -> str:
    """Three numbers, as Cargo wants them: ``2.8.3`` of ``2.8.3.post2``."""
    numbers = re.findall(r"\d+", re.split(r"[^\d.]", upstream_version, maxsplit=1)[0])[:3]
    return ".".join(str(int(number)) for number in (*numbers, 0, 0, 0)[:3])


def _header_text(library: LinkableLibrary) -> str:
    path = library.include / "flash_attention.h"
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{path} cannot be read, and the bindings are made of it: {error}.",
            hint="Get the library again: flashdepot get",
        ) from error


def _require_ours(folder: Path) -> None:
    hint = f"Name a new or an empty folder: {_ELSEWHERE}"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, and a crate is a folder of files.", hint=hint)
    if not folder.exists() or not any(folder.iterdir()):
        return
    manifest = folder / "Cargo.toml"
    if not manifest.is_file() or not manifest.read_text("utf-8", "replace").startswith(_SIGNATURE):
        raise UsageError(f"{folder} is not empty and is no crate that flashdepot wrote.", hint=hint)
