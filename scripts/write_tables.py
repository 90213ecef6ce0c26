"""Write src/flashdepot/facts/tables.json from the tables of flashdepot.

Usage: PYTHONPATH=src python scripts/write_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path

from flashdepot.facts import COPIES
from flashdepot.files.documents import read_toml

PACKAGE = Path(__file__).parents[1] / "src/flashdepot"
TARGET = PACKAGE / "facts" / COPIES.name
FOLDERS = ("catalog", "facts", "kernels", "toolchain")


def main() -> None:
    """Write the file."""
    TARGET.write_text(copies(), encoding="utf-8")
    print(f"wrote {TARGET}")


def copies() -> str:
    """Every table, a line each."""
    files = sorted(file for folder in FOLDERS for file in (PACKAGE / folder).rglob("*.toml"))
    rows = (f"{json.dumps(file.relative_to(PACKAGE).as_posix())}: {json.dumps(read_toml(file))}" for file in files)
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    main()
