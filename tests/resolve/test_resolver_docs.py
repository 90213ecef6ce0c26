"""The page on the resolver names every rule, and what it shows is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from flashdepot.files.documents import read_toml
from flashdepot.resolve.lock import Lock
from flashdepot.resolve.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "resolver.md"


def test_every_rule_is_in_the_table_in_its_order() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE) == [rule.id for rule in RULES]


def test_the_lock_that_is_shown_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    name = re.findall(r'filename = "(.*)"', shown)[0].replace("+", "%2B")
    path = tmp_path / "flashdepot.lock"
    path.write_text(shown.replace("https://...", f"https://example.org/{name}").replace('"..."', f'"{"ab" * 32}"'))
    assert Lock.from_toml(read_toml(path)).locked.wheel.torch == "2.8"
