"""Renew the tables of pinned wheels from PyPI: zig_wheels.toml, nvcc_wheels.toml and cute_dsl_wheels.toml.

Usage: PYTHONPATH=src python scripts/renew_wheels.py [zig] [nvcc] [cute_dsl]

Change the versions here, run it, then run the tests, those marked network too: they compile and link with the wheels that
the files name. For nvcc all wheels are fetched (about 300 MB) and unpacked, for the digests of what is in them. A zig
whose clang takes other words fails in the tests.
"""

from __future__ import annotations

import datetime
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pypi_simple import DistributionPackage, PyPISimple

from flashdepot.files.folders import tree_digest
from flashdepot.toolchain.wheels import PinnedWheel, toolkit_of

PACKAGE = Path(__file__).parents[1] / "src/flashdepot"
OURS = "manylinux.*_(x86_64|aarch64)$|win_amd64"

ZIG = (("0.14.1", "19", "13.0"), ("0.11.0", "16", "12.0"))
"""The version, its clang's, and the oldest CUDA that it preprocesses for; the newest first."""
ZIG_TAGS = {
    "linux-x86_64": "manylinux2010_x86_64",
    "linux-aarch64": "manylinux2014_aarch64",
    "windows-x86_64": "win_amd64",
}
NO_NVCC_WITH_ZIG = {"windows-x86_64"}
"""Where nvcc takes another host compiler, so that no zig preprocesses."""

CUDA = "13.0.88"
NVCC = {
    "nvidia-cuda-nvcc": "13.0.88",
    "nvidia-nvvm": "13.0.88",
    "nvidia-cuda-crt": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",
}

CUTE_DSL = "4.8.1"
CUTE_DSL_WHEELS = {
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


def wheels(index: PyPISimple, versions: dict[str, str]) -> Iterator[DistributionPackage]:
    """Every wheel of some projects, each in one version."""
    for project, version in versions.items():
        for package in index.get_project_page(project).packages:
            if package.version == version and package.package_type == "wheel":
                yield package


def pinned(table: str, packages: Iterable[DistributionPackage]) -> list[str]:
    """A table of the SHA-256 of each wheel, by its name."""
    return ["", f"[{table}]", *(f'"{one.filename}" = "{one.digests["sha256"]}"' for one in packages)]


def zig(index: PyPISimple) -> list[str]:
    """Each version, with its wheel for each machine that it is for."""
    lines, packages = [], index.get_project_page("ziglang").packages
    for version, clang, cuda in ZIG:
        values = {"version": version, "clang": clang, "preprocesses_from": cuda}
        lines += ["", "[[zig]]", *(f'{name} = "{value}"' for name, value in values.items())]
        tags = [tag for ours, tag in ZIG_TAGS.items() if ours not in NO_NVCC_WITH_ZIG or version == ZIG[0][0]]
        lines += pinned(
            "zig.wheels", [next(p for p in packages if p.version == version and tag in p.filename) for tag in tags]
        )
    return lines


def nvcc(index: PyPISimple) -> list[str]:
    """Each wheel for Linux, and the digest of what those of a platform unpack to: Windows has Linux's toolkit."""
    found = [package for package in wheels(index, NVCC) if "linux" in package.filename]
    made = [PinnedWheel(package.filename, package.digests["sha256"]) for package in found]
    lines = ["", f'cuda = "{CUDA}"', "", "# The digest of all files that a platform's wheels unpack to.", "[tree]"]
    for platform in sorted({wheel.platform for wheel in made if wheel.platform}, reverse=True):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder, "tree")
            toolkit_of(wheel for wheel in made if wheel.platform == platform).unpack(tree, print)
            lines.append(f'{platform} = "{tree_digest(tree)}"')
    return lines + pinned("wheels", found)


def cute_dsl(index: PyPISimple) -> list[str]:
    """Each wheel for every machine, or for our platforms and a Python that is served."""
    found = []
    for package in wheels(index, CUTE_DSL_WHEELS):
        _, python, abi, platforms = package.filename.removesuffix(".whl").rsplit("-", 3)
        ours = python == abi and python in PYTHONS and re.search(OURS, platforms)
        if platforms == "any" or ours:
            found.append(package)
    return ["", f'cute_dsl = "{CUTE_DSL}"', *pinned("wheels", found)]


TABLES = {
    zig: "facts/zig_wheels.toml",
    nvcc: "toolchain/nvcc_wheels.toml",
    cute_dsl: "toolchain/cute_dsl_wheels.toml",
}


def main(wanted: list[str]) -> None:
    """Keep the comment that a file begins with, and write the rest again."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    with PyPISimple() as index:
        for renewed, name in TABLES.items():
            if not wanted or renewed.__name__ in wanted:
                comment = (PACKAGE / name).read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
                comment[1] = f"# Written by scripts/renew_wheels.py on {today} from PyPI's own listing."
                (PACKAGE / name).write_text("\n".join([*comment, *renewed(index)]) + "\n", encoding="utf-8")
                print(f"wrote {PACKAGE / name}")


if __name__ == "__main__":
    main(sys.argv[1:])
