"""The project's documents."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = ("README*.md", "CONTRIBUTING.md", "docs/*.md", "examples/**/README.md", "benchmarks/*.md")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
