"""The README and its Russian twin: the two commands that everything begins with, and one content in two languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import ROOT, Page, parse_page, read_page

ENGLISH, RUSSIAN = (read_page(ROOT / name) for name in ("README.md", "README.RU.md"))


def differences(one: Page, other: Page) -> list[str]:
    """The parts of two pages in two languages that should be the same, and are not."""
    own = {one.path.name, other.path.name}
    parts = {
        "headings": lambda page: [heading.level for heading in page.headings],
        "code blocks": lambda page: [(fence.language, fence.mark, fence.text) for fence in page.fences],
        "links": lambda page: [target for target in page.links if target not in own],
        "code spans": lambda page: sorted(page.spans),
        "rows of tables": lambda page: page.table_rows,
    }
    return [name for name, part in parts.items() if part(one) != part(other)]


def test_the_two_readmes_say_the_same() -> None:
    assert not differences(ENGLISH, RUSSIAN)
    assert RUSSIAN.path.name in ENGLISH.links
    assert ENGLISH.path.name in RUSSIAN.links


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("## Titel\n\n### Mehr\n", "headings"),
        ("## Titel\n\n```sh\nls -l\n```\n", "code blocks"),
        ("## Titel\n\n[hier](c.md)\n", "links"),
        ("## Titel\n\n`y`\n", "code spans"),
        ("## Titel\n\n| a |\n| --- |\n", "rows of tables"),
    ],
)
def test_a_difference_is_seen(changed: str, expected: str) -> None:
    assert differences(parse_page(Path("a.md"), "## Title\n"), parse_page(Path("b.md"), changed)) == [expected]


def test_the_two_commands_are_in_the_readme() -> None:
    blocks = [fence.text for fence in ENGLISH.fences]
    assert blocks[0] == (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/flashdepot get --profile quick\n"
    )
    assert blocks[1] == "./scripts/test\n"
