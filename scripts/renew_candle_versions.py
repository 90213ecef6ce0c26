"""Renew src/flashdepot/link/candle_versions.toml from the crates that candle has published.

Usage: PYTHONPATH=src python scripts/renew_candle_versions.py

Needs cargo: it fetches every version of each crate and unpacks it where Cargo keeps such things, about 350 MB.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from packaging.version import Version

from flashdepot.files.documents import read_toml
from flashdepot.link.candle_versions import DATA, CandleSources, default_cargo_home, read_candle_sources

CRATES = ("candle-flash-attn", "candle-flash-attn-v3")
FLOOR = Version("0.3.0")
_CUDA = re.compile(r"cuda-(\d+)0(\d)0")


@dataclass(frozen=True)
class Published:
    """A version of a crate, what its sources say, and which cudarc candle-core of the same version asks for."""

    crate: str
    version: str
    sources: CandleSources
    cudarc: str
    cuda: str

    def facts(self) -> list[str]:
        """What versions in one line of the file have in common."""
        read = self.sources
        return [
            f'crate = "{self.crate}"',
            f'function = "{read.function.name}"',
            f"arguments = {len(read.function.arguments)}",
            f'call = "{read.function.digest}"',
            f'builder = "{read.builder}"',
            f'cutlass = "{read.cutlass}"',
            f"units = {len(read.units)}",
            f"head_dims = {read.head_dims}",
            f"splitkv_head_dims = {read.splitkv_head_dims}",
            f'cudarc = "{self.cudarc}"',
            f'cuda = "{self.cuda}"',
        ]


def main() -> None:
    """Write the file."""
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    lines = [
        "# The FlashAttention crates of candle: what each version calls, compiles and asks for.",
        "# Written by scripts/renew_candle_versions.py from the published crates.",
        "#",
        "# call      digest of the function's name, arguments and types (src/ffi.rs); equal digests are the same call",
        "# builder   what build.rs compiles with. nvcc and bindgen_cuda compile nothing when libflashattention.a in",
        "#           CANDLE_FLASH_ATTN_BUILD_DIR is newer than every .cu; cudaforge asks a cache of its own as well",
        "# cutlass   inside the crate, cloned with git by every run of build.rs, or missing, so that build.rs cannot compile",
        "# units     the .cu files that build.rs compiles",
        "# cudarc    what candle-core of the same version asks for; cuda: the releases that the newest such cudarc knows",
        'source = "src/ffi.rs, build.rs and Cargo.toml of every version on crates.io"',
        f"date = {today}",
    ]
    for crate in CRATES:
        for facts, group in groupby(map(published, *zip(*versions(crate), strict=True)), Published.facts):
            names = ", ".join(f'"{p.version}"' for p in group)
            lines += ["", "[[line]]", facts[0], f"versions = [{names}]", *facts[1:]]
            print(f"{crate}: {names}")
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {DATA}")


def published(crate: str, version: str) -> Published:
    """Fetch and read one version."""
    core = read_toml(unpacked("candle-core", version) / "Cargo.toml")["dependencies"]["cudarc"]
    return Published(
        crate, version, read_candle_sources(unpacked(crate, version)), core["version"], cuda_releases(core["version"])
    )


def cuda_releases(cudarc: str) -> str:
    """The oldest and the newest CUDA that the newest cudarc that a requirement allows has bindings for."""
    newest = cargo_info(f"cudarc@{cudarc.rpartition('.')[0]}")["version"].split()[0]
    features = read_toml(unpacked("cudarc", newest) / "Cargo.toml").get("features", {})
    found = sorted((int(m[1]), int(m[2])) for name in features if (m := _CUDA.fullmatch(name)))
    return " to ".join(f"{major}.{minor}" for major, minor in (found[0], found[-1])) if found else "not said"


def versions(crate: str) -> Iterator[tuple[str, str]]:
    """The published versions from FLOOR on, oldest first, as Cargo's copy of the index has them."""
    cargo_info(crate)
    (index,) = (default_cargo_home() / "registry" / "index").glob(f"*/.cache/{crate[:2]}/{crate[2:4]}/{crate}")
    records = [json.loads(part) for part in index.read_bytes().split(b"\0") if part.startswith(b"{")]
    known = sorted((r["vers"] for r in records if not r["yanked"]), key=Version)
    yield from ((crate, version) for version in known if Version(version) >= FLOOR)


def unpacked(crate: str, version: str) -> Path:
    """The folder of a version's sources."""
    cargo_info(f"{crate}@{version}")
    (manifest,) = (default_cargo_home() / "registry" / "src").glob(f"*/{crate}-{version}/Cargo.toml")
    return manifest.parent


def cargo_info(spec: str) -> dict[str, Any]:
    """What ``cargo info`` says of a version, which it fetches and unpacks for that."""
    command = ["cargo", "info", "--color", "never", spec]
    done = subprocess.run(command, cwd=os.sep, capture_output=True, text=True, check=True)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


if __name__ == "__main__":
    main()
