"""A library's folder for Windows as the build writes it, whose functions answer 42 instead of computing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from flashdepot.build.objects import cross_linking
from flashdepot.depot.libraries import manifest_text
from flashdepot.files.atomic import sha256_file
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.model.manifest import ManifestFile
from flashdepot.model.target import Platform
from flashdepot.toolchain.targets import exported_names, target_of
from flashdepot.toolchain.zig import Zig
from support.coff import compile_coff, link_dll, make_visual_studio
from support.depot_factories import make_manifest

ANSWER = 42
_VALUES = {
    "VERSION": "2.8.3",
    "UPSTREAM_VERSION": "2.8.3.post2",
    "PLATFORM": "windows-x86_64",
    "RUNTIME": "",
}
_LAYER = """
__attribute__((section(".drectve"), used)) static const char directives[] = " /DEFAULTLIB:msvcrt ";
__declspec(dllimport) unsigned long GetLastError(void);
"""


@dataclass(frozen=True)
class ForgedLibrary:
    """The folder, and the value of the variable LIB with which a linker finds what Windows itself provides."""

    root: Path
    lib: str


def forge_library(root: Path, work: Path) -> ForgedLibrary:
    """Link stand-ins for the entry points, which call Windows, and add all that travels with a library."""
    studio = make_visual_studio(work / "Visual Studio")
    names = exported_names((NATIVE / "templates" / "libflashattention.map").read_text())
    bodies = [f"int {name}(void) {{ GetLastError(); return {ANSWER}; }}\n" for name in names]
    linked = link_dll(studio, [compile_coff(_LAYER + "".join(bodies), work / "abi.obj")], work, names)
    files = {
        **linked,
        "include/flash_attention.h": NATIVE / "include" / "flash_attention.h",
        **cross_linking(target_of(Platform("windows", "x86_64")), Zig(Path("zig"), "0.14.1")).templates,
    }
    for place, path in files.items():
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".in":
            text = path.read_text()
            for name, value in _VALUES.items():
                text = text.replace(f"@{name}@", value)
            target.write_text(text)
        else:
            shutil.copy(path, target)
    listed = (ManifestFile(place, sha256_file(root / place), (root / place).stat().st_size) for place in sorted(files))
    manifest = make_manifest(platform=Platform("windows", "x86_64"), libc_floor=None, files=tuple(listed))
    (root / "manifest.json").write_bytes(manifest_text(manifest))
    return ForgedLibrary(root, str(studio.system))
