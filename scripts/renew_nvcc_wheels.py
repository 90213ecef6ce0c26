"""Renew src/flashdepot/toolchain/nvcc_wheels.toml from PyPI.

Usage: PYTHONPATH=src python scripts/renew_nvcc_wheels.py

All wheels are fetched (about 300 MB) and unpacked, for the digests of what is in them. Change VERSIONS, run it, then run the tests: they compile and link with the wheels that the file names.
"""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

from pypi_simple import PyPISimple

from flashdepot.files.folders import tree_digest
from flashdepot.toolchain.wheels import PinnedWheel, unpack_toolkit

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
    """Ask the index for every wheel of VERSIONS and write name, SHA-256 and platform of each, and what they unpack to."""
    wheels = []
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
                wheels.append(
                    {
                        "project": project,
                        "filename": package.filename,
                        "sha256": package.digests["sha256"],
                        "platform": platform,
                    }
                )
    lines += ["", "# The digest of all files that a platform's wheels unpack to.", "[tree]"]
    lines += [f'{platform} = "{unpacked_digest(platform, wheels)}"' for platform in PLATFORMS]
    for wheel in wheels:
        lines += ["", "[[wheel]]", *(f'{name} = "{value}"' for name, value in wheel.items())]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {DATA}")


def unpacked_digest(platform: str, wheels: list[dict[str, str]]) -> str:
    """Fetch and unpack the wheels of one platform, and return the digest of what they hold."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = [PinnedWheel(**wheel) for wheel in wheels if wheel["platform"] == platform]
        unpack_toolkit(chosen, Path(folder, "tree"), print)
        return tree_digest(Path(folder, "tree"))


if __name__ == "__main__":
    main()
