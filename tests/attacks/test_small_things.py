"""Small things that a stranger's file or address did."""

from __future__ import annotations

import sys

import pytest

from flashdepot.process import run as running
from flashdepot.process.run import run

URL = "https://user:TOKEN@host/a.git"


@pytest.mark.parametrize(
    "text",
    [
        f"git fetch -- {URL} main",
        f"git -c x='{URL}'",
        f"Fetching {URL.replace('user:TOKEN', 'TOKEN')}",
        URL.replace("KEN", "KEN@x"),
    ],
)
def test_what_verbose_shows_has_no_credentials(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    said: list[str] = []
    monkeypatch.setattr(running, "_listeners", [said.append])
    running.trace(text)
    assert "TOKEN" not in said[0]
    assert "host/a.git" in said[0]


TOO_MANY = """
import contextlib, resource
from pathlib import Path
from flashdepot.errors import MissingToolError
from flashdepot.process.run import run

held = [Path("/dev/null").open()]
resource.setrlimit(resource.RLIMIT_NOFILE, (held[0].fileno() + 32,) * 2)
with contextlib.suppress(OSError):
    while True:
        held.append(Path("/dev/null").open())
while held:
    try:
        run(["true"])
    except MissingToolError as error:
        print(error.hint)
    held.pop().close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_many_open_files_say_how_to_allow_more() -> None:
    """However many are free, from none on: another call of the system is refused each time."""
    hints = run([sys.executable, "-c", TOO_MANY]).stdout.splitlines()
    assert len(hints) > 3  # the files for what it writes alone are three
    assert all("ulimit -n" in hint for hint in hints)
