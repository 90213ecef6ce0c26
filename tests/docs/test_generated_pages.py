"""Pages that are written by a script say what the sources say now."""

from __future__ import annotations

import re
import runpy

from support.documents import ROOT

HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
matrix = runpy.run_path(str(ROOT / "scripts/write_matrix.py"))["page"]
page_of = runpy.run_path(str(ROOT / "scripts/write_c_reference.py"))["page"]


def test_the_c_reference_is_what_the_header_says() -> None:
    assert (ROOT / "docs/c-api.md").read_text() == page_of(HEADER.read_text()), "run scripts/write_c_reference.py"


def test_the_c_reference_has_every_declaration_under_its_name() -> None:
    page = (ROOT / "docs/c-api.md").read_text()
    code = "".join(page.split("```")[1::2])
    _, _, declared = HEADER.read_text().partition('extern "C" {\n#endif\n')
    declared, _, _ = declared.partition("#ifdef __cplusplus")
    lines = [line for line in re.sub(r"^/\*.*?\*/$", "", declared, flags=re.DOTALL | re.MULTILINE).splitlines() if line]
    assert len(lines) > 200
    assert [line for line in lines if line not in code] == []
    assert {f"### {name}" for name in re.findall(r"\b(fa_\w+)\([^()]*\) FA_NOEXCEPT", declared)} <= set(
        page.splitlines()
    )


def test_the_matrix_is_what_the_tables_and_the_catalog_say() -> None:
    assert (ROOT / "docs/matrix.md").read_text() == matrix(), "run scripts/write_matrix.py"
