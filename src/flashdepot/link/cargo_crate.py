"""The crate flashattention-sys with a library inside it, complete and offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flashdepot.depot.export import library_files
from flashdepot.depot.libraries import manifest_text
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile
from flashdepot.link.library import LinkableLibrary
from flashdepot.model.manifest import MANIFEST_NAME

CRATE = "flashattention-sys"

SOURCE = Path(__file__).parent / "crate"
"""The crate as it is published."""

_PLACES = ("Cargo.toml", "LICENSE", "README.md", "build.rs", "src/bindings.rs", "src/lib.rs", "tests/contents.rs")
_ATTRIBUTES = """\
# The libraries go to Git LFS, and a checkout changes no line endings.
* -text
/library/*/lib/shared/* filter=lfs diff=lfs merge=lfs -text
/library/*/lib/static/* filter=lfs diff=lfs merge=lfs -text
"""
_ELSEWHERE = "flashdepot link cargo DIR"
_RECORD = ".flashdepot-cargo.json"


def write_crate(library: LinkableLibrary, folder: Path) -> Path:
    """Write the crate with the library inside it, next to those for other platforms, and return its folder, absolute.

    The folder is new, empty, or a crate that was written here before; other files in it stay. Everything in it can be
    moved and put under version control.
    """
    own = f"library/{library.manifest.platform}/"

    def is_of_another_platform(place: str) -> bool:
        return place.startswith("library/") and not place.startswith(own)

    crate = OutputFolder(folder, "crate", _RECORD, _ELSEWHERE, keeps=is_of_another_platform)
    files = (
        *(OutputFile.of(place, text.encode()) for place, text in crate_texts().items()),
        *library_files(library.manifest, library.source, own),
        OutputFile.of(f"{own}{MANIFEST_NAME}", manifest_text(library.manifest)),
    )
    return crate.write(files)


def crate_texts() -> Mapping[str, str]:
    """The crate's own files by their place: the published ones, outside of this project's Cargo workspace."""
    texts = {place: (SOURCE / place).read_text("utf-8") for place in _PLACES}
    lines = texts["Cargo.toml"].splitlines(keepends=True)
    texts["Cargo.toml"] = "".join(line for line in lines if not line.startswith(("workspace =", "exclude =")))
    texts[".gitattributes"] = _ATTRIBUTES
    return texts
