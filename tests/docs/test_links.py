"""Every link of a document leads somewhere, on a Git host as well as in the site."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from support.documents import DOCUMENTS, Page, name_of, parse_page, read_page


def broken_links(page: Page) -> list[str]:
    """Targets that are no file, or no heading of the file."""
    return [target for target in page.links if "://" not in target and not _is_there(page, unquote(target))]


def _is_there(page: Page, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = page.path.parent / name if name else page.path
    if name and (not path.exists() or Path(name).is_absolute()):
        return False
    linked = page if not name else read_page(path) if anchor else None
    return linked is None or anchor in {heading.anchor for heading in linked.headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_leads_to_a_file_and_a_heading(path: Path) -> None:
    assert not broken_links(read_page(path))


def test_every_page_of_the_docs_can_be_reached_from_their_index() -> None:
    docs = Path(__file__).parents[2] / "docs"
    linked = {(docs / target.partition("#")[0]).resolve() for target in read_page(docs / "index.md").links}
    assert not {name_of(path) for path in docs.glob("*.md")} - {"docs/index.md"} - set(map(name_of, linked))


@pytest.mark.parametrize("target", ["no.md", "../no.md", "#no", "other.md#no", "/other.md", "no.png"])
def test_a_broken_link_is_seen(tmp_path: Path, target: str) -> None:
    (tmp_path / "other.md").write_text("# Yes\n\n## Yes\n")
    text = (
        f"# Here\n\n[a](#here) [b](other.md) [c](other.md#yes) [d](other.md#yes-1) [e]({target}) <https://f.org/#g>\n"
    )
    assert broken_links(parse_page(tmp_path / "page.md", text)) == [target]
