"""Tables of facts say when they were checked; how long ago that is stands at the end of every test run."""

from __future__ import annotations

import datetime as dt
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SCRIPT: Any = runpy.run_path(str(ROOT / "scripts/check_tables.py"))
NO_TABLES = {"kernels/fa2/quirks.toml", "diagnose/explain/steps.toml", "link/crate/Cargo.toml"}
"""Facts about sources that never change, how logs are read, and a crate."""


def test_every_file_of_facts_is_among_the_tables_that_age() -> None:
    package = ROOT / "src/flashdepot"
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.toml")}
    rules = {name for name in found if name.startswith("diagnose/explain/rules/")}
    assert found - rules - NO_TABLES == {table.path for table in SCRIPT["TABLES"]}


@pytest.mark.parametrize("table", SCRIPT["TABLES"], ids=lambda table: table.path)
def test_a_table_says_when_it_was_checked_and_what_it_knows(table: Any) -> None:
    assert dt.date(2026, 1, 1) <= table.checked
    assert (table.known is not None) == bool(table.project)
    assert SCRIPT["age"](table, table.checked + dt.timedelta(days=30)).endswith("30 days ago")


@pytest.mark.parametrize(
    ("known", "released", "newer"),
    [
        ("2.11", ["2.11.3", "2.10.0"], None),
        ("2.11", ["2.12.0", "2.11.0"], "2.12.0"),
        ("2.11", ["2.12.0rc1", "no version"], None),
        ("13.0.88", ["13.1.80", "12.9.1"], "13.1.80"),
        ("4.0.0b36", ["4.0.0b36", "4.0.0b37"], "4.0.0b37"),
    ],
)
def test_a_table_is_behind_when_a_newer_release_is_out(known: str, released: list[str], newer: str | None) -> None:
    assert SCRIPT["behind"](Version(known), released) == (Version(newer) if newer else None)


def test_the_ages_are_printed_without_a_network() -> None:
    command = [sys.executable, str(ROOT / "scripts/check_tables.py"), "--offline"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )
    assert len(done.stdout.splitlines()) == len(SCRIPT["TABLES"])
