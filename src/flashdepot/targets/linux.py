"""Linux: shared and static libraries, linked by zig against any GNU C library from 2.17 on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import FlashdepotError
from flashdepot.model.library_names import LINUX
from flashdepot.targets.row import Row

if TYPE_CHECKING:
    from flashdepot.targets.linked import Linked
    from flashdepot.toolchain.zig import Zig

_EXPORTS = "templates/libflashattention.map"


class Linux:
    """ELF and the GNU C library."""

    names = LINUX
    object_suffix = ".o"
    words = ("-D__GLIBC_MINOR__=17",)
    link_words = (
        "-shared",
        "-s",
        f"-Wl,-soname,{LINUX.shared}",
        f"-Wl,--version-script={{native}}/{_EXPORTS}",
        "-Wl,--no-undefined",
        "-Wl,--gc-sections",
        "-Wl,-z,now",
        "-Wl,-z,relro",
    )
    static_needs = ("dl", "pthread")

    def link(self, row: Row, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
        """Make ``libflashattention.so.1`` and ``libflashattention.a``."""
        from flashdepot.binary.elf import read_shared_library  # noqa: PLC0415  (every command knows the targets, and few link)
        from flashdepot.binary.private_names import privately  # noqa: PLC0415
        from flashdepot.targets.checks import prove_objects, prove_shared  # noqa: PLC0415
        from flashdepot.targets.linked import Linked, require  # noqa: PLC0415

        prove_objects(objects)
        objects = privately(objects, folder / "objects")
        static, shared = folder / LINUX.static[0], folder / LINUX.shared
        linker = zig.linker(row.zig, folder)
        # D: no dates and no owners, so that equal objects make equal archives.
        require(linker.run("ar", "rcsD", str(static), *map(str, objects)), static)
        exports = shutil.copyfile(native / _EXPORTS, folder / Path(_EXPORTS).name)
        words = [word.replace(f"{{native}}/{_EXPORTS}", str(exports)) for word in self.link_words]
        needs = [f"-l{name}" for name in self.static_needs]
        command = ["cc", "-target", row.zig, *words, "-o", str(shared), *map(str, objects), *needs]
        require(linker.run(*command), shared)
        facts = read_shared_library(shared)
        prove_shared(facts)
        if row.libc_floor and facts.libc_floor and facts.libc_floor > row.libc_floor:
            raise FlashdepotError(
                f"{shared.name} needs GNU libc {facts.libc_floor}, and for {row} {row.libc_floor} is promised."
            )
        return Linked(
            {f"lib/static/{LINUX.static[0]}": static, f"lib/shared/{LINUX.shared}": shared},
            {f"lib/shared/{LINUX.shared_linked}": LINUX.shared},
            row.libc_floor,
        )
