"""Renew src/flashdepot/facts/zig_wheels.toml from PyPI.

Usage: python scripts/renew_zig_wheels.py

Change PINS, run it, then run the tests: they compile and link for every target with the wheels that the file names. A
version whose clang takes other words fails there.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from pypi_simple import PyPISimple

DATA = Path(__file__).parents[1] / "src/flashdepot/facts/zig_wheels.toml"
PINS = (("0.14.1", "19", "13.0"), ("0.11.0", "16", "12.0"))
"""The version, its clang's, and the oldest CUDA that it preprocesses for; the newest first."""
PLATFORMS = {
    "linux-x86_64": "manylinux2010_x86_64",
    "linux-aarch64": "manylinux2014_aarch64",
    "windows-x86_64": "win_amd64",
}
NO_NVCC_WITH_ZIG = {"windows-x86_64"}
"""Where nvcc takes another host compiler, so that no zig preprocesses."""


def main() -> None:
    """Keep the comment of the file, and write its pins anew."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    comment = [line for line in DATA.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    comment[1] = f"# Written by scripts/renew_zig_wheels.py on {today} from PyPI's own listing."
    lines = [*comment]
    with PyPISimple() as index:
        packages = index.get_project_page("ziglang").packages
    for version, clang, cuda in PINS:
        lines += ["", "[[zig]]", f'version = "{version}"', f'clang = "{clang}"', f'preprocesses_from = "{cuda}"']
        for platform, tag in PLATFORMS.items():
            if platform in NO_NVCC_WITH_ZIG and version != PINS[0][0]:
                continue
            found = next(p for p in packages if p.version == version and tag in p.filename)
            lines += [
                "",
                "[[zig.wheel]]",
                f'filename = "{found.filename}"',
                f'sha256 = "{found.digests["sha256"]}"',
                f'platform = "{platform}"',
            ]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {DATA}")


if __name__ == "__main__":
    main()
