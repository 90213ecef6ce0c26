"""Pages that are written by a script say what the sources say now."""

from __future__ import annotations

import re
import runpy

import pytest

from support.documents import ROOT, read_page

HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
structure = runpy.run_path(str(ROOT / "scripts/write_structure.py"))["page"]
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


def test_the_packages_are_those_that_there_are() -> None:
    text = (ROOT / "docs/structure.md").read_text()
    assert text == structure(text), "run scripts/write_structure.py"
    packages = {path.parent.name for path in (ROOT / "src/flashdepot").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/structure.md"])
def test_every_file_that_is_named_is_there(name: str) -> None:
    spans = read_page(ROOT / name).spans
    named = {word for span in spans for word in span.split() if re.fullmatch(r"\.?\w+(/[\w.*-]+)+", word)}
    folders = (ROOT, ROOT / "src/flashdepot")
    assert len(named) > 15
    assert not {path for path in named if not any(any(folder.glob(path)) for folder in folders)}
