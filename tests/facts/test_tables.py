from __future__ import annotations

import runpy
from pathlib import Path

from flashdepot.facts import COPIES, read_table

ROOT = Path(__file__).parents[2]


def test_the_tables_that_are_read_hold_what_their_files_say() -> None:
    copies = runpy.run_path(str(ROOT / "scripts/write_tables.py"))["copies"]()
    assert COPIES.read_text(encoding="utf-8") == copies, "run scripts/write_tables.py"


def test_a_file_of_somebody_elses_is_read_as_it_is(tmp_path: Path) -> None:
    table = tmp_path / "gpus.toml"
    table.write_text('universal = ["80"]\n')
    assert read_table(table) == {"universal": ["80"]}
