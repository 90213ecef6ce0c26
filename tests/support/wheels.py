"""Our wheels without a compiler, over libraries of some bytes."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.files.disk import sha256_file
from flashdepot.fit.needs import READERS, Needs
from flashdepot.host.probe import libc_version, this_platform
from flashdepot.kernels import family_of
from flashdepot.kernels.fa2 import published as published_sdists
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.selection import PROFILES, select
from flashdepot.model.target import Platform, Version
from flashdepot.upstream import SourceTree
from flashdepot.wheel.builder import Wheel, build_wheel, jax_modules
from support.depots import store_library
from support.recipes import architectures
from support.tools import write_files
from support.upstreams import LAYOUT, make_folder

PACKAGE = {
    "flash_attn/__init__.py": '__version__ = "9.9.9"\nfrom flash_attn.flash_attn_interface import flash_attn_func\n',
    "flash_attn/flash_attn_interface.py": "import torch\nimport flash_attn_2_cuda\nflash_attn_func = print\n",
    "flash_attn/ops/__init__.py": "",
    "flash_attn/ops/triton/__init__.py": "",
    "flash_attn/ops/triton/linear.py": "import triton\n",
    "flash_attn/bits/loose.py": "no package has it: bits has no __init__.py\n",
    "flash_attn/cute/__init__.py": "import cutlass\n",
    "flash_attn/cute/pyproject.toml": "[project]\n",
    "README.md": "# FlashAttention\n",
    "AUTHORS": "Tri Dao\n",
}


def make_source(folder: Path) -> SourceTree:
    """Make a tree with a small Python package."""
    make_folder(folder)
    return SourceTree.read(LAYOUT, write_files(folder, PACKAGE))


def store_wheel_library(depot: Depot, tree: SourceTree, folder: Path, shared: Path | None = None) -> Manifest:
    """Store a library of that source for this machine; `shared` is its shared library, some bytes by default."""
    if os.name != "posix":
        pytest.skip("the stand-in library is one for Linux")
    manifest = store_library(
        depot,
        folder,
        upstreams={"fa2": tree.id},
        selection=select(PROFILES["quick"], tree.units),
        sass=architectures("80,90"),
        platform=this_platform(),
        libc_floor=libc_version(),
    )
    contents: Mapping[str, bytes] = {
        "lib/shared/libflashattention.so.1": shared.read_bytes() if shared else os.urandom(1000),
        "share/licenses/cutlass/LICENSE": b"BSD, NVIDIA\n",
        "share/licenses/flash-attention/LICENSE": b"BSD, Tri Dao\n",
    }
    sources = {name: folder / "wheel" / name for name in contents}
    for name, data in contents.items():
        sources[name].parent.mkdir(parents=True, exist_ok=True)
        sources[name].write_bytes(data)
    files = [ManifestFile(name, sha256_file(path), path.stat().st_size) for name, path in sources.items()]
    whole = replace(manifest, files=(*files, *(file for file in manifest.files if file.link)))
    depot.artifacts.store(whole, sources)
    return whole


DRIVERS = {"13.0": "580.65.06", "12.8": "525.60.13"}
LIBRARIES = {"linux": "libflashattention.so.1", "windows": "flashattention.dll"}


class WheelMaker:
    """Makes wheels of one source tree into one folder, by way of a depot.

    :param platform: what they are for, unless :meth:`make` is given another.
    :param published: give the tree the version, the digest and the units of a published one.
    """

    def __init__(
        self, folder: Path, depot: Depot | None = None, *, published: str = "", platform: str = "linux-x86_64"
    ) -> None:
        self.folder = folder
        self.platform = platform
        self.depot = depot or Depot(folder / "depot")
        self.tree: SourceTree = make_source(folder / "upstream")
        if published:
            known = published_sdists()[published].identified
            self.tree = replace(self.tree, id=known.id, units=known.units)

    def make(
        self,
        sass: str = "80,90",
        *,
        profile: str = "full",
        platform: str = "",
        libc: str = "2.17",
        cuda: str = "13.0",
        driver: str = "",
        name: str = "",
        library: Path | None = None,
        more: tuple[str, ...] = (),
    ) -> Wheel:
        """A wheel; ``name`` makes another one of the same contents, ``library`` is its shared library.

        ``more`` are families that it holds next to fa2.
        """
        platform = platform or self.platform
        key = f"{sass} {profile} {platform} {libc} {cuda} {name}{''.join(more)}"
        known = {family: family_of(family).sources.find_sdist(_newest(family)).identified for family in more}
        trees = {family: replace(self.tree, id=one.id, units=one.units) for family, one in known.items()}
        trees["fa2"] = self.tree
        place = self.folder / digest_of(key)[:12]
        system = Platform.parse(platform)
        is_linux = system.system == "linux"
        manifest = store_library(
            self.depot,
            place,
            recipe_key=digest_of(key),
            upstreams={family: tree.id for family, tree in trees.items()},
            selection=select(PROFILES[profile], frozenset().union(*(tree.units for tree in trees.values()))),
            sass=architectures(sass),
            platform=system,
            libc_floor=Version(libc) if is_linux else None,
            driver_floor=Version(driver or DRIVERS[cuda]),
            cuda=cuda,
        )
        shared = f"lib/shared/{LIBRARIES[system.system]}"
        sources = {shared: place / "shared", "share/licenses/flash-attention/LICENSE": place / "licence"}
        sources[shared].write_bytes(library.read_bytes() if library else key.encode() * 20)
        sources["share/licenses/flash-attention/LICENSE"].write_bytes(b"BSD, Tri Dao\n")
        files = [ManifestFile(name, sha256_file(path), path.stat().st_size) for name, path in sources.items()]
        whole = replace(manifest, files=tuple(files))
        self.depot.artifacts.store(whole, sources)
        return build_wheel(whole, self.depot.libraries.materialise(whole), trees, self.folder / "dist")


def _newest(family: str) -> str:
    return family_of(family).sources.default_version()


def lay_out(site: Path) -> Path:
    """Put the package into a folder; gives the place for its library, whose folder is there."""
    folder = site / "flashdepot_jax"
    (folder / "lib").mkdir(parents=True)
    for module in jax_modules():
        shutil.copy(module, folder)
    return folder / "lib" / "libflashattention.so.1"


def needs_of_name(wheel: PublishedWheel) -> Needs:
    """What one wheel needs, as its name tells it."""
    parts = {part: r.read(*(getattr(wheel, field) for field in r.fields)) for part, r in READERS.items()}
    return Needs(**parts)
