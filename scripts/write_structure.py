"""Write the table of packages in docs/structure.md from their docstrings and the layers of import-linter.

Usage: PYTHONPATH=src python scripts/write_structure.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from flashdepot.files.documents import read_toml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/structure.md"

_TABLE = re.compile(r"(<!-- packages: .*? -->\n\n)(?:\|.*\n)*\n?")


def main() -> None:
    """Write the table."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def page(text: str) -> str:
    """The page with the table of today."""
    table = "\n".join(["| package | |", "| --- | --- |", *_rows()])
    return _TABLE.sub(lambda found: f"{found[1]}{table}\n\n", text)


def _rows() -> Iterator[str]:
    contracts = read_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    for module in (module.strip() for layer in layers for module in layer.split("|")):
        place = ROOT / "src" / module.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        said = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        yield f"| `{module.removeprefix('flashdepot.')}` | {' '.join(said.split()).replace('``', '`')} |"


if __name__ == "__main__":
    main()
