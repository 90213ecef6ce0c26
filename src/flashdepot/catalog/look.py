"""What our HTML pages share: how they look, and commands with a button that copies them."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

_HERE = Path(__file__).parent


@cache
def style() -> str:
    """The style sheet of every page."""
    return (_HERE / "look.css").read_text(encoding="utf-8")


@cache
def copy_script() -> str:
    """What makes the buttons of :func:`command` work; they are hidden without it."""
    return (_HERE / "copy.js").read_text(encoding="utf-8")


def command(identifier: str, text: str, what: str) -> str:
    """A command with its button; ``what`` says to a screen reader what is copied."""
    return (
        f'<div class="command"><pre tabindex="0" id="{identifier}">{escape(text)}</pre>'
        f'<button type="button" data-copy="{identifier}" aria-label="Copy {escape(what)}" hidden>Copy</button></div>'
    )
