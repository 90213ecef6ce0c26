"""Renew what the published crate flashattention-sys shares with the crate that ``link cargo`` writes.

Usage: PYTHONPATH=src python scripts/renew_rust_bindings.py

Run it after flash_attention.h or a template of the crate was changed. A test compares the files with what this writes.
"""

from __future__ import annotations

from pathlib import Path

from flashdepot.link.cargo_crate import crate_texts

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
CRATE = ROOT / "rust/flashattention-sys"
SHARED = ("build.rs", "src/lib.rs", "src/bindings.rs")


def shared_texts() -> dict[str, str]:
    """The files of the crate that are made from the header and the templates, by their place."""
    texts = crate_texts("0.0.0", HEADER.read_text("utf-8"))
    return {place: texts[place] for place in SHARED}


if __name__ == "__main__":
    for place, text in shared_texts().items():
        (CRATE / place).write_text(text, encoding="utf-8")
        print(f"wrote {CRATE / place}")
