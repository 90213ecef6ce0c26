"""Pages that are written by a script say what the sources say now."""

from __future__ import annotations

import runpy

from support.documents import ROOT

HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
matrix = runpy.run_path(str(ROOT / "scripts/write_matrix.py"))["page"]
page_of = runpy.run_path(str(ROOT / "scripts/write_c_reference.py"))["page"]


def test_the_c_reference_is_what_the_header_says() -> None:
    assert (ROOT / "docs/c-api.md").read_text() == page_of(HEADER.read_text()), "run scripts/write_c_reference.py"


def test_the_c_reference_has_every_comment_of_the_header() -> None:
    header = (
        "/* A library.\n *\n *     int x;\n *\n * Rules\n * - One. */\n/* kinds */\nenum { FA_A = 1 /* the *a* */ };\n"
    )
    header += (
        "/* A thing. */\ntypedef struct fa_t {\n  int32_t n; /* how many */\n  /* Later: */\n  int32_t m; /* b | c */\n"
    )
    header += "} fa_t;\n/* Does fa_t. */\nfa_t fa_f(const fa_t *args);\n"
    page = page_of(header)
    for said in (
        "```c\nint x;\n```\n",
        "## Rules\n\n- One.",
        "kinds\n\n| name",
        "| `FA_A` | 1 | the \\*a* |",
        "A thing.",
        "| `n` | `int32_t` | 0 | how many |\n\nLater:\n\n",
        "| `m` | `int32_t` | 4 | b \\| c |",
        "fa_t fa_f(const fa_t *args);",
        "Does `fa_t`.\n\nIts arguments: [`fa_t`](#fa_t).",
    ):
        assert said in page


def test_the_matrix_is_what_the_tables_and_the_catalog_say() -> None:
    assert (ROOT / "docs/matrix.md").read_text() == matrix(), "run scripts/write_matrix.py"
