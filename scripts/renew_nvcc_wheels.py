"""Renew src/flashdepot/toolchain/nvcc_wheels.toml from PyPI.

Usage: python scripts/renew_nvcc_wheels.py

Change VERSIONS, run it, then run the tests: they compile and link with the wheels that the file names.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from pypi_simple import PyPISimple

DATA = Path(__file__).parents[1] / "src/flashdepot/toolchain/nvcc_wheels.toml"

CUDA = "13.0.88"
VERSIONS = {
    "nvidia-cuda-nvcc": "13.0.88",
    "nvidia-nvvm": "13.0.88",
    "nvidia-cuda-crt": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",
}
PLATFORMS = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "win_amd64"}


def main() -> None:
    """Ask the index for every wheel of VERSIONS and write name, SHA-256 and platform of each."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    lines = [
        "# The wheels on PyPI that hold nvcc and what it needs, pinned.",
        f"# Written by scripts/renew_nvcc_wheels.py on {today} from PyPI's own listing.",
        "",
        f'cuda = "{CUDA}"',
    ]
    with PyPISimple() as index:
        for project, version in VERSIONS.items():
            page = index.get_project_page(project)
            for package in page.packages:
                if package.version != version or package.package_type != "wheel":
                    continue
                platform = next(ours for ours, tag in PLATFORMS.items() if tag in package.filename)
                lines += [
                    "",
                    "[[wheel]]",
                    f'project = "{project}"',
                    f'filename = "{package.filename}"',
                    f'sha256 = "{package.digests["sha256"]}"',
                    f'platform = "{platform}"',
                ]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {DATA}")


if __name__ == "__main__":
    main()
