"""Wheels of ours without a compiler: each over a library of some bytes, for what a test needs."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.files.atomic import sha256_file
from flashdepot.kernels import family_of
from flashdepot.kernels.fa2.sources import published as published_sdists
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import ManifestFile
from flashdepot.model.selection import PROFILES, select
from flashdepot.model.target import Platform, Version, parse_list
from flashdepot.upstream import SourceTree
from flashdepot.wheel import Wheel, build_wheel
from support.depot_factories import store_library
from support.stored_wheel import make_source

DRIVERS = {"13.0": "580.65.06", "12.8": "525.60.13"}
LIBRARIES = {"linux": "libflashattention.so.1", "windows": "flashattention.dll"}


class WheelMaker:
    """Makes wheels of one source tree into one folder, by way of a depot.

    :param published: give the tree the version, the digest and the units of a published one.
    """

    def __init__(self, folder: Path, depot: Depot | None = None, *, published: str = "") -> None:
        self.folder = folder
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
        platform: str = "linux-x86_64",
        libc: str = "2.17",
        cuda: str = "13.0",
        driver: str = "",
        name: str = "",
        library: Path | None = None,
        more: tuple[str, ...] = (),
    ) -> Wheel:
        """A wheel; ``name`` makes another one of the same contents, ``library`` is its shared library.

        ``more`` are families that it holds besides fa2.
        """
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
            sass=parse_list(sass),
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
