"""A stored library and a source tree for wheels, without a compiler and without a network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.files.atomic import sha256_file
from flashdepot.host.probe import libc_version, this_platform
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.selection import PROFILES, select
from flashdepot.model.target import parse_list
from flashdepot.upstream import SourceTree
from flashdepot.upstream.source import read_folder
from support.depot_factories import store_library
from support.fa2_source import LAYOUT
from support.upstream_tree import make_folder

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
    for name, text in PACKAGE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_folder(LAYOUT, folder)


def store_wheel_library(depot: Depot, tree: SourceTree, folder: Path, shared: Path | None = None) -> Manifest:
    """Store a library of that source for this machine; `shared` is its shared library, some bytes by default."""
    manifest = store_library(
        depot,
        folder,
        upstreams={"fa2": tree.id},
        selection=select(PROFILES["quick"], tree.units),
        sass=parse_list("80,90"),
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
