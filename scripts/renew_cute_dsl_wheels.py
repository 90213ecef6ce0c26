"""Renew src/flashdepot/toolchain/cute_dsl_wheels.toml from PyPI.

Usage: python scripts/renew_cute_dsl_wheels.py

Change VERSIONS, run it, then run the tests marked network: they compile a kernel with the wheels that the file names.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from pypi_simple import DistributionPackage, PyPISimple

DATA = Path(__file__).parents[1] / "src/flashdepot/toolchain/cute_dsl_wheels.toml"

CUTE_DSL = "4.8.1"
VERSIONS = {
    "nvidia-cutlass-dsl-libs-core": CUTE_DSL,
    "nvidia-cutlass-dsl-libs-base": CUTE_DSL,
    "nvidia-cutlass-dsl-libs-cu13": CUTE_DSL,
    "cuda-bindings": "13.5.0",
    "cuda-pathfinder": "1.9.0",
    "apache-tvm-ffi": "0.1.15.post2",
    "quack-kernels": "0.6.5",
    "typing-extensions": "4.16.0",
    "numpy": "2.4.6",
}
PYTHONS = ("cp311", "cp312", "cp313", "cp314")
PLATFORMS = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "win_amd64"}


def fits(package: DistributionPackage) -> tuple[str, str] | None:
    """The Python and the platform that a wheel is for, "any" where it is for all; None for one not wanted."""
    _, python, abi, platforms = package.filename.removesuffix(".whl").rsplit("-", 3)
    if platforms == "any":
        return "any", "any"
    if python != abi or python not in PYTHONS or not re.search("manylinux|win_amd64", platforms):
        return None
    return python, next(ours for ours, tag in PLATFORMS.items() if platforms.endswith(tag))


def main() -> None:
    """Ask the index for every wheel of VERSIONS and write name, SHA-256, Python and platform of each."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    lines = [
        "# The wheels on PyPI that hold CuTe DSL and what it and FlashAttention-4's kernels import, pinned.",
        f"# Written by scripts/renew_cute_dsl_wheels.py on {today} from PyPI's own listing.",
        "",
        f'cute_dsl = "{CUTE_DSL}"',
    ]
    with PyPISimple() as index:
        for project, version in VERSIONS.items():
            for package in index.get_project_page(project).packages:
                if package.version != version or package.package_type != "wheel":
                    continue
                fitting = fits(package)
                if fitting is not None:
                    python, platform = fitting
                    lines += [
                        "",
                        "[[wheel]]",
                        f'project = "{project}"',
                        f'version = "{version}"',
                        f'filename = "{package.filename}"',
                        f'sha256 = "{package.digests["sha256"]}"',
                        f'python = "{python}"',
                        f'platform = "{platform}"',
                    ]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {DATA}")


if __name__ == "__main__":
    main()
