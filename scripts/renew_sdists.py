"""Renew src/flashdepot/kernels/fa2/sdists.toml from PyPI.

Usage: PYTHONPATH=src python scripts/renew_sdists.py

Every sdist from FLOOR on that has not been withdrawn is fetched, unpacked and read, which takes about a minute.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

from flashdepot.files.archive import unpack
from flashdepot.files.directory import PlainFiles
from flashdepot.files.folders import tree_digest
from flashdepot.kernels.fa2 import DATA, Fa2Layout, make_unit
from flashdepot.model.selection import Dtype, Feature, Pass
from flashdepot.net.fetch import fetch
from flashdepot.net.index import PackageIndex
from flashdepot.net.transport import read_index_settings
from flashdepot.upstream.source import is_kept

LAYOUT = Fa2Layout()
FLOOR = Version("2.7.4.post1")  # the first with the launch templates that the C layer is written against


def main() -> None:
    """Write name, digest, size and content of each sdist, oldest first."""
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    lines = [
        "# The sdists of flash-attn on PyPI, pinned, and the kernels that each has, with and without a causal mask.",
        f"# Written by scripts/renew_sdists.py on {today} from PyPI's own listing and the sdists themselves.",
        "",
        f'project = "{LAYOUT.project}"',
        "",
        "sdist = [",
    ]
    with PackageIndex(None, read_index_settings()) as index:
        sdists = {
            Version(package.version): (package.filename, package.digests["sha256"])
            for package in index.packages(LAYOUT.project)
            if package.package_type == "sdist" and package.version and not package.is_yanked
        }
    for version, (filename, sha256) in sorted(sdists.items()):
        if version >= FLOOR:
            lines.append(f"  {{ {', '.join(entry(str(version), filename, sha256))} }},")
            print(f"read {filename}")
    DATA.write_text("\n".join([*lines, "]", ""]), encoding="utf-8")
    print(f"wrote {DATA}")


def entry(version: str, filename: str, sha256: str) -> list[str]:
    """Fetch one sdist and describe it."""
    with tempfile.TemporaryDirectory() as folder:
        archive = fetch(LAYOUT.project, filename, sha256, Path(folder, filename))
        unpack(archive, Path(folder, "tree"), keep=lambda name: is_kept(LAYOUT, name.partition("/")[2]))
        files = PlainFiles(Path(folder, "tree", filename.removesuffix(".tar.gz")))
        tree = tree_digest(Path(folder, "tree"))
        size, units, features = archive.stat().st_size, LAYOUT.units(files), LAYOUT.features(files)
    dims = {p: sorted({u.head_dim for u in units if u.pass_ is p}) for p in Pass}
    dtypes = [d for d in Dtype if any(u.dtype is d for u in units)]
    if units != {make_unit(p, h, d, causal=c) for p in Pass for h in dims[p] for d in dtypes for c in (False, True)}:
        raise SystemExit(f"{filename} has units that are no product of passes, head dims, dtypes and causality")
    return [
        f'version = "{version}"',
        f'filename = "{filename}"',
        f'sha256 = "{sha256}"',
        f"size = {size}",
        f'tree = "{tree}"',
        f"head_dims = {{ {', '.join(f'{p} = {head_dims}' for p, head_dims in dims.items())} }}",
        f"dtypes = {names(dtypes)}",
        f"features = {names(f for f in Feature if f in features)}",
    ]


def names(values: Iterable[object]) -> str:
    """Spell a TOML array of strings."""
    return json.dumps([str(value) for value in values])


if __name__ == "__main__":
    main()
