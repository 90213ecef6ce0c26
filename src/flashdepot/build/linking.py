"""How objects become libraries, and the files about linking that lie beside its libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.families.c_layer import NATIVE, c_layer_digest
from flashdepot.model.canonical import digest_of
from flashdepot.system.files import sha256_file
from flashdepot.targets import Row
from flashdepot.targets.clang import cxx_words
from flashdepot.targets.linked import Linked
from flashdepot.toolchain.zig import Zig

_TEMPLATES = NATIVE / "templates"
_WINDOWS_FILES = Path(__file__).with_name("windows_files")


class Linking(msgspec.Struct, frozen=True):
    """One way to link. ``templates`` are files by their place in a library's folder, ``flags`` those of its programs.

    ``own_templates`` are those of the templates that are not part of the C layer's folder.
    """

    link: Callable[[Sequence[Path], Path, Path], Linked]
    c_layer_flags: tuple[str, ...]
    flags: tuple[str, ...]
    templates: Mapping[str, Path]
    own_templates: tuple[Path, ...] = ()

    @property
    def digest(self) -> str:
        """One SHA-256 for the C layer, how it is compiled and how all is linked."""
        parts = {"c_layer": c_layer_digest(), "cxx": list(self.c_layer_flags), "link": list(self.flags)}
        own = {path.name: sha256_file(path) for path in self.own_templates}
        return digest_of({**parts, "templates": own} if own else parts)


def _templates(folder: Path) -> dict[str, Path]:
    """The files of a folder that say something else on each system, by their place beside the libraries."""
    return {
        "lib/cmake/FlashAttention/FlashAttentionConfig.cmake": folder / "FlashAttentionConfig.cmake.in",
        "lib/pkgconfig/flashattention.pc": folder / "flashattention.pc.in",
        "lib/pkgconfig/flashattention-static.pc": folder / "flashattention-static.pc.in",
    }


_VERSION_TEMPLATE = {
    "lib/cmake/FlashAttention/FlashAttentionConfigVersion.cmake": _TEMPLATES / "FlashAttentionConfigVersion.cmake.in"
}


def cross_linking(row: Row, zig: Zig) -> Linking:
    """The way to link for a target. Nothing of NVIDIA's is linked, so no runtime and no notice of it lie beside."""
    folder = _TEMPLATES if row.platform.system == "linux" else _WINDOWS_FILES
    templates = _templates(folder)

    def link_for(objects: Sequence[Path], native: Path, work: Path) -> Linked:
        return row.system.link(row, zig, objects, native, work)

    return Linking(
        link_for,
        cxx_words(row),
        (row.zig, *row.system.link_words),
        {**templates, **_VERSION_TEMPLATE},
        own_templates=tuple(templates.values()) if folder is _WINDOWS_FILES else (),
    )
