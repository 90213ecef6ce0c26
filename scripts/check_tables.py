"""Say how old each table of facts is, and what PyPI has that the tables do not.

Usage: PYTHONPATH=src python scripts/check_tables.py [--offline] [--renew]

Exit code 1 when PyPI has something newer than a table: a weekly job shows it, no test fails by the calendar. With
``--renew`` the tables that a script can write are written first.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import VERSION_PATTERN, Version

from flashdepot.net.index import PackageIndex
from flashdepot.net.transport import read_index_settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/flashdepot"
_DATE = re.compile(r"\b(20\d\d-\d\d-\d\d)\b")


@dataclass(frozen=True)
class Table:
    """A file of facts that age: the project on PyPI that it follows, if any, and what renews it.

    ``newest`` finds the newest version that it knows; ``script`` is empty where a person must read the source that the
    file names. A ``pinned`` one stays at its version until somebody changes that in its script and runs the tests.
    """

    path: str
    project: str = ""
    newest: str = ""
    script: str = ""
    pinned: bool = False

    @property
    def text(self) -> str:
        """The whole file."""
        return (PACKAGE / self.path).read_text(encoding="utf-8")

    @property
    def checked(self) -> dt.date:
        """The latest day that the file itself says it was checked, read or written on.

        :raises ValueError: when it says none.
        """
        days = [dt.date.fromisoformat(day) for day in _DATE.findall(self.text)]
        if not days:
            raise ValueError(f"{self.path} does not say when it was checked")
        return max(days)

    @property
    def known(self) -> Version | None:
        """The newest version of its project that it knows."""
        found = (
            [Version(version) for version in re.findall(self.newest, self.text, re.MULTILINE)] if self.newest else []
        )
        return max(found, default=None)


TABLES = (
    Table("facts/torch_symbols.toml", "torch", r'^newest = "([\d.]+)"'),
    Table("facts/torch_symbol_patterns.toml", "torch", r'^checked = ".* to ([\d.]+)"'),
    Table("facts/torch_builds.toml"),
    Table("facts/drivers.toml"),
    Table("facts/gpus.toml"),
    Table("facts/compilers.toml"),
    Table("facts/wheel_builders.toml"),
    Table("facts/zig_wheels.toml", "ziglang", r'^version = "([\d.]+)"', "renew_wheels.py", pinned=True),
    Table("facts/cuda_archives.toml"),
    Table("toolchain/nvcc_wheels.toml", "nvidia-cuda-nvcc", r'^cuda = "([\d.]+)"', "renew_wheels.py", pinned=True),
    Table("toolchain/cute_dsl_wheels.toml", "nvidia-cutlass-dsl", r'^cute_dsl = "([\d.]+)"', "renew_wheels.py"),
    Table("kernels/fa2/sdists.toml", "flash-attn", r'{ version = "([^"]+)"', "renew_sdists.py"),
    Table("kernels/fa3/sdists.toml", "xformers", r'^version = "(.+)"'),
    Table("kernels/fa4/sdists.toml", "flash-attn-4", r'^version = "(.+)"'),
    Table("link/candle_versions.toml", script="renew_candle_versions.py"),
    Table("catalog/sources.toml"),
    Table("catalog/machine_code.toml"),
    Table("diagnose/explain/packages.toml"),
)


def age(table: Table, today: dt.date) -> str:
    """One line: the file, when it was checked, and how many days ago that is."""
    days = (today - table.checked).days
    return f"{table.path}: checked {table.checked}, {days} day{'' if days == 1 else 's'} ago"


def oldest(today: dt.date) -> str:
    """The line of the table that nobody has checked for the longest."""
    return age(min(TABLES, key=lambda table: table.checked), today)


def behind(known: Version, released: list[str]) -> Version | None:
    """The newest release that is newer than a known version, counted to as many numbers as that has, or ``None``."""
    versions = [Version(text) for text in released if re.fullmatch(VERSION_PATTERN, text, re.VERBOSE | re.IGNORECASE)]
    newest = max((v for v in versions if known.is_prerelease or not v.is_prerelease), default=known)
    numbers = len(known.release)
    newer = newest > known if known.is_prerelease else newest.release[:numbers] > known.release
    return newest if newer else None


def main() -> int:
    """Print every table's age, and what it is behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offline", action="store_true", help="only ages")
    parser.add_argument("--renew", action="store_true", help="run the scripts that renew tables first")
    options = parser.parse_args()
    if options.renew:
        scripts = dict.fromkeys(table.script for table in TABLES if table.script)
        for script in (*scripts, "write_tables.py"):
            print(f"running {script}", flush=True)
            subprocess.run([sys.executable, str(ROOT / "scripts" / script)], check=True)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    late = 0
    with PackageIndex(None, read_index_settings()) as index:
        for table in TABLES:
            line = age(table, today)
            if table.project and table.known is not None and not options.offline:
                released = [p.version for p in index.packages(table.project) if p.version and not p.is_yanked]
                newer = behind(table.known, released)
                line += f"; knows {table.project} {table.known}"
                if newer is not None and table.pinned:
                    line += f", on purpose; PyPI has {newer}"
                elif newer is not None:
                    late += 1
                    how = f"scripts/{table.script}" if table.script else "by hand, as its comment says"
                    line += f", and PyPI has {newer}: renew it, {how}"
            print(line)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
