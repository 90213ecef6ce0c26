"""A ``-sys`` crate around a library, complete and offline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flashdepot.depot.artifacts import manifest_text
from flashdepot.depot.export import library_files
from flashdepot.errors import IntegrityError
from flashdepot.link.c_header import parse_header
from flashdepot.link.library import LinkableLibrary
from flashdepot.link.rust_bindings import rust_bindings
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.system.output_file import OutputFile, record, record_text
from flashdepot.system.output_folder import OutputFolder

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
_LIBRARY = "library/"
_RECORD = ".flashdepot-cargo.json"


def write_crate(library: LinkableLibrary, folder: Path) -> Path:
    """Write the crate with the library inside it, and return its folder, absolute.

    The folder is new, empty, or a crate that was written here before; other files in it stay, and so does one of ours
    that was changed since: then the crate is not written. Everything in it can be moved and put under version control.

    :raises UsageError: when the folder holds something else.
    :raises IntegrityError: when the library's files are not what its manifest says, or its header cannot be read.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    crate = OutputFolder(folder, "crate", record(_RECORD), _ELSEWHERE)
    texts = crate_texts(library.manifest.upstream.version, _header_text(library))
    manifest = OutputFile.of(f"{_LIBRARY}{MANIFEST_NAME}", manifest_text(library.manifest))
    files = (
        *(OutputFile.of(place, text.encode()) for place, text in texts.items()),
        *library_files(library.manifest, library.source, _LIBRARY),
        manifest,
    )
    return crate.write(files, record_text(files))


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
