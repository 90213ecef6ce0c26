"""Windows: a DLL with an import library for MSVC and MinGW, and a static library, linked by zig over the UCRT."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.model.library_names import WINDOWS
from flashdepot.targets.row import Row

if TYPE_CHECKING:
    from flashdepot.targets.linked import Linked
    from flashdepot.toolchain.zig import Zig

_MINGW_IMPORTS = "libflashattention.dll.a"
"""The name that MinGW's linkers look for first; the bytes are those of the import library for MSVC."""


class Windows:
    """PE and the universal C runtime, which is part of Windows 10 and later."""

    names = WINDOWS
    object_suffix = ".obj"
    words = (
        "-D__MSVCRT_VERSION__=0xE00",
        "-D_WIN32_WINNT=0x0a00",
        "-DFA_STATIC",  # the definition file exports; what the objects exported, a program would as well
        "-U__ELF__",  # clang 19 defines it for CUDA whatever the target is, and NVIDIA's headers ask for it
        "-mms-bitfields",
        "-fno-use-init-array",
        "-fno-use-cxa-atexit",
    )
    link_words = ("-shared", "-s", "-Wl,--gc-sections")
    static_needs = ("kernel32",)

    def link(self, row: Row, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
        """Make ``flashattention.dll``, its import library and ``flashattention.lib``."""
        from flashdepot.binary.private_names import for_every_linker, privately  # noqa: PLC0415  (every command knows the targets, and few link)
        from flashdepot.targets.checks import prove_dll, prove_import_library  # noqa: PLC0415
        from flashdepot.targets.exports import definition_text, exported_names  # noqa: PLC0415
        from flashdepot.targets.linked import Linked, require  # noqa: PLC0415

        static, shared = folder / "static", folder / "shared"
        static.mkdir()
        shared.mkdir()
        linker = zig.linker(row.zig, folder)
        names = exported_names((native / "templates" / "libflashattention.map").read_text(encoding="utf-8"))
        definition = folder / "flashattention.def"
        definition.write_text(definition_text(names), encoding="ascii")
        archive, dll, imports = static / WINDOWS.static[0], shared / WINDOWS.shared, shared / WINDOWS.shared_linked
        own = privately(objects, folder / "objects")
        (folder / "members").mkdir()
        members = [folder / "members" / path.name for path in own]
        for path, member in zip(own, members, strict=True):
            member.write_bytes(for_every_linker(path.read_bytes(), path.name))
        require(linker.run("ar", "rcsD", str(archive), *map(str, members)), archive)
        shutil.copyfile(archive, static / WINDOWS.static[1])
        outputs = ["-o", str(dll), f"-Wl,--out-implib,{imports}"]
        command = ["cc", "-target", row.zig, *self.link_words, *outputs, *map(str, own), str(definition)]
        require(linker.run(*command), dll)
        shutil.copyfile(imports, shared / _MINGW_IMPORTS)
        prove_dll(dll, names)
        prove_import_library(imports)
        places = {f"lib/static/{name}": static / name for name in WINDOWS.static}
        files = (dll, imports, shared / _MINGW_IMPORTS)
        return Linked({**places, **{f"lib/shared/{path.name}": path for path in files}})
