"""Tables of facts: what they hold, how old they are, and what is read of them."""

import datetime as dt
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version as Release

from flashdepot.diagnose.explain.machine import built_for
from flashdepot.errors import UsageError
from flashdepot.facts import COPIES, about_torch_symbols, default_cxx11_abi, read_table, table, torch_symbols
from flashdepot.facts.gpus import parse_architecture, parse_architectures
from flashdepot.model.target import Architecture, Version, spell
from support.tools import run_program

ROOT = Path(__file__).parents[2]


def test_the_tables_that_are_read_hold_what_their_files_say() -> None:
    copies = runpy.run_path(str(ROOT / "scripts/write_tables.py"))["copies"]()
    assert COPIES.read_text(encoding="utf-8") == copies, "run scripts/write_tables.py"


def test_a_file_of_somebody_elses_is_read_as_it_is(tmp_path) -> None:
    table = tmp_path / "gpus.toml"
    table.write_text('universal = ["80"]\n')
    assert read_table(table) == {"universal": ["80"]}


SCRIPT: Any = runpy.run_path(str(ROOT / "scripts/check_tables.py"))
NO_TABLES = {"kernels/fa2/quirks.toml", "diagnose/explain/steps.toml", "diagnose/explain/sentences.toml",
    "link/crate/Cargo.toml"}  # fmt: skip
"""Facts about sources that never change, how logs are read, and a crate."""


def test_every_file_of_facts_is_among_the_tables_that_age() -> None:
    package = ROOT / "src/flashdepot"
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.toml")}
    rules = {name for name in found if name.startswith("diagnose/explain/rules/")}
    assert found - rules - NO_TABLES == {table.path for table in SCRIPT["TABLES"]}


@pytest.mark.parametrize("table", SCRIPT["TABLES"], ids=lambda table: table.path)
def test_a_table_says_when_it_was_checked_and_what_it_knows(table) -> None:
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
def test_a_table_is_behind_when_a_newer_release_is_out(known, released, newer) -> None:
    assert SCRIPT["behind"](Release(known), released) == (Release(newer) if newer else None)


def test_the_ages_are_printed_without_a_network() -> None:
    command = [sys.executable, str(ROOT / "scripts/check_tables.py"), "--offline"]
    said = run_program(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert len(said.splitlines()) == len(SCRIPT["TABLES"])


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("90", "9.0"),
        ("9.0", "9.0"),
        ("sm_90", "9.0"),
        ("sm_90a", "9.0a"),
        ("RTX 4090", "8.9"),
        ("rtx4090", "8.9"),
        ("NVIDIA GeForce RTX 3080 Ti", "8.6"),
        ("3080ti", "8.6"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("RTX 4000 SFF Ada Generation", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("L40S", "8.9"),
        ("A10G", "8.6"),
        ("GB10", "12.1"),
    ],
)
def test_an_architecture_is_a_number_or_the_name_of_a_gpu(text, capability) -> None:
    assert parse_architecture(text) == Architecture.parse(capability)


def test_a_list_mixes_numbers_and_names() -> None:
    assert spell(parse_architectures("RTX 4090, 9.0;sm_80")) == "80,89,90"
    assert spell(parse_architectures("80 90")) == "80,90"


@pytest.mark.parametrize("text", ["RTX 4000", "RTX", "A1000000", "GTX 1080", "", "8", "sm_"])
def test_a_name_that_is_not_known_is_refused_with_what_is_expected(text) -> None:
    with pytest.raises(UsageError, match="expected a compute capability such as 80"):
        parse_architecture(text)


def test_no_two_architectures_share_a_name() -> None:
    for row in table("gpus")["architecture"]:
        for name in row["names"]:
            assert parse_architecture(name) == Architecture.parse(row["capability"])


TORCH_SYMBOLS: Any = runpy.run_path(str(ROOT / "scripts/torch_symbols.py"))
NEWER = [(Version("2.12"), frozenset({"stays", "goes", "was"})), (Version("2.13"), frozenset({"stays", "comes"}))]


@pytest.mark.parametrize(
    ("row", "longer"),
    [
        (("stays", "", ""), [("stays", "", "")]),
        (("goes", "2.3", ""), [("goes", "2.3", "2.12")]),
        (("gone", "", ""), [("gone", "", "2.11")]),
        (("old", "2.1", "2.4"), [("old", "2.1", "2.4")]),
        (("was", "2.1", "2.4"), []),
        (("comes", "2.1", ""), []),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_row_says_what_newer_minors_export_and_one_with_a_gap_is_left_out(row, longer) -> None:
    assert list(TORCH_SYMBOLS["longer"]([row], "2.11", NEWER)) == longer


@pytest.mark.parametrize(
    ("end", "torch"),
    [
        ("ib", "torch 2.0 to 2.9"),
        ("jb", "torch 2.10 to 2.13"),
        ("jbPNS0_19CUDAErrorLogCaptureE", "torch 2.14 or newer"),
    ],
)
def test_one_symbol_tells_for_which_torches_a_module_was_built(end, torch) -> None:
    assert str(built_for(f"_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_{end}")) == torch


def test_the_table_reaches_no_further_than_it_says() -> None:
    newest = Version.parse(about_torch_symbols()["newest"])
    assert all(Version.parse(row["until"]) < newest for row in torch_symbols() if row["until"])


@pytest.mark.parametrize(
    ("minor", "local", "machine", "new"),
    [
        ("2.5", "cu124", "aarch64", False),
        ("2.6", "cu124", "x86_64", False),
        ("2.6", "cu126", "x86_64", True),
        ("2.6", "", "x86_64", None),
        ("2.6", "", "aarch64", True),
        ("2.7", "", "x86_64", True),
    ],
)
def test_the_abi_of_pytorchs_own_builds_is_known_by_version_build_and_machine(minor, local, machine, new) -> None:
    assert default_cxx11_abi(minor, local, machine) is new
