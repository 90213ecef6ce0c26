"""Renew src/flashdepot/link/candle_versions.toml from the crates that candle has published.

Usage: PYTHONPATH=src python scripts/renew_candle_versions.py

Needs cargo: it fetches every version of each crate and unpacks it where Cargo keeps such things, about 350 MB.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from flashdepot.link.candle_versions import DATA, CandleLine, default_cargo_home

CRATES = ("candle-flash-attn", "candle-flash-attn-v3")
FLOOR = Version("0.3.0")


_FACTS = ("function", "arguments", "call", "paged")


def facts(line: CandleLine) -> str:
    """What versions in one line of the file have in common, as TOML."""
    return ", ".join(f"{name} = {json.dumps(getattr(line, name))}" for name in _FACTS)


def main() -> None:
    """Write the file."""
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    lines = [
        "# The FlashAttention crates of candle: what each version calls.",
        "# Written by scripts/renew_candle_versions.py from the published crates.",
        "#",
        "# call      digest of the function's name, arguments and types (src/ffi.rs); equal digests are the same call",
        "# paged     whether there are kernels that read pages",
        'source = "src/ffi.rs and build.rs of every version on crates.io"',
        f"date = {today}",
        "",
        "line = [",
    ]
    for crate in CRATES:
        read = (CandleLine.of_sources(crate, version, unpacked(crate, version)) for version in versions(crate))
        for common, group in groupby(read, facts):
            names = json.dumps([line.versions[0] for line in group])
            lines.append(f'  {{ crate = "{crate}", {common}, versions = {names} }},')
            print(f"{crate}: {names}")
    DATA.write_text("\n".join([*lines, "]", ""]), encoding="utf-8")
    print(f"wrote {DATA}")


def versions(crate: str) -> list[str]:
    """The published versions from FLOOR on, oldest first, as Cargo's copy of the index has them."""
    cargo_info(crate)
    (index,) = (default_cargo_home() / "registry" / "index").glob(f"*/.cache/{crate[:2]}/{crate[2:4]}/{crate}")
    records = [json.loads(part) for part in index.read_bytes().split(b"\0") if part.startswith(b"{")]
    known = (r["vers"] for r in records if not r["yanked"])
    return sorted((version for version in known if Version(version) >= FLOOR), key=Version)


def unpacked(crate: str, version: str) -> Path:
    """The folder of a version's sources."""
    cargo_info(f"{crate}@{version}")
    (manifest,) = (default_cargo_home() / "registry" / "src").glob(f"*/{crate}-{version}/Cargo.toml")
    return manifest.parent


def cargo_info(spec: str) -> None:
    """``cargo info`` of a version, which fetches and unpacks it."""
    subprocess.run(["cargo", "info", "--color", "never", spec], cwd=os.sep, capture_output=True, check=True)


if __name__ == "__main__":
    main()
