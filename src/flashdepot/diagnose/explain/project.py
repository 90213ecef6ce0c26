"""The user's project: its own files, the failed command and the variables, and how a text in them is changed."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.diagnose.explain.settings import Settings
from flashdepot.diagnose.explain.shell import UserShell

_OWN = (
    "pyproject.toml", "Cargo.toml", "*/Cargo.toml", "CMakeLists.txt", "*/CMakeLists.txt", "Makefile", "makefile", "setup.py", "setup.cfg",
    "requirements*.txt", "requirements/*.txt", "environment*.y*ml", "CMakePresets.json", "*.cmake", "build.rs", "rust-toolchain*", "*/Makefile",
)  # fmt: skip
"""The files that say how a project is installed and built, from the folder of the failed command on."""
_COMPILES = re.compile(r"(?:\S*/)?(?:g\+\+|gcc|c\+\+|clang\+\+|nvcc|ld)\s")
"""A command that a file says more often than a person does: the file is changed where it has what is wrong."""

HARMLESS = re.compile(r"[\w@%+=:,./~-]+")
"""A name, of a log or of a file, that a shell takes for one word and nothing else."""
ALIKE = 0.6
"""How much a word must be like another, of 1, to be meant for it."""


class ProjectFiles:
    """The files, the variables and the failed command of a user, which is empty where it is not known."""

    def __init__(self, shell: UserShell, settings: Settings, failed: str) -> None:
        self.shell, self.files, self.settings, self.failed = shell, shell.files, settings, failed

    @property
    def lacks_sed(self) -> bool:
        """Whether a person changes the files by hand: on Windows, of the log or here."""
        return self.shell.windows or os.name == "nt"

    def written(
        self,
        old: re.Pattern[str],
        new: str | Callable[[re.Match[str]], str],
        remark: str,
        own: Sequence[str] = _OWN,
    ) -> str:
        """What has ``new`` where ``old`` is: the failed command, a variable, or a line of a file of settings or of the project."""
        put = new if callable(new) else lambda found: found.expand(new) if "\\g<" in new else new
        changed = old.sub(put, self.failed)
        typed = f"{changed}   # {remark}" if changed != self.failed else ""
        if typed and not _COMPILES.match(self.failed):
            return typed
        for name, value in self.shell.variables.items() if own == _OWN else ():
            if old.search(value):
                return f"export {name}={shlex.quote(old.sub(put, value))}   # {remark}; then the same command"
        settings = ((place, number, line) for _, place, number, line in self.settings.lines() if own == _OWN)
        for place, number, line in (*settings, *self.lines(own)):
            if old.search(line):
                return self.replaced(place, number, old.sub(put, line), remark)
        return typed

    def lines(self, patterns: Sequence[str]) -> Iterator[tuple[str, int, str]]:
        """Each line of those files that is not a comment, with the file and its number."""
        for place in dict.fromkeys(path for pattern in patterns for path in self.files.find(pattern)):
            lines = enumerate(self.files.text(place).splitlines(), 1)
            yield from ((place, number, line) for number, line in lines if not line.lstrip().startswith("#"))

    def replaced(self, place: str, number: int, new: str, remark: str) -> str:
        """The command that writes a line of a file again, or, where there is no sed, the line."""
        if self.lacks_sed:
            write = f"write   {new.strip()}" if new.strip() else "take it out"
            return f"{place}, line {number}: {write}   # {remark}; then the same command"
        if not new.strip():
            return f"sed -i.bak {number}d {shlex.quote(place)}   # {remark}; then the same command"
        code = f"{number}s|.*|" + re.sub(r"[\\&|]", lambda found: f"\\{found[0]}", new) + "|"
        return f"sed -i.bak {shlex.quote(code)} {shlex.quote(place)}   # {new.strip()}: {remark}; then the same command"

    def document(self, place: str) -> Mapping[str, Any]:
        """What a TOML or JSON file has; empty where it is not there or is none."""
        text = self.files.text(place)
        with suppress(msgspec.DecodeError):
            return dict(msgspec.json.decode(text or "{}") if place.endswith(".json") else msgspec.toml.decode(text))
        return {}

    def keys(self, given: str, groups: Mapping[str, str]) -> Iterator[str]:
        """The names that a table of a file has, of one that a crate of the registry has where ``crate`` is named."""
        place, _, path = given.partition(":")
        if not path:
            return
        if place == "folder":
            yield from (Path(found).name for found in self.files.find(f"{glob.escape(groups['folder'])}/*"))
        if crate := groups.get("crate"):
            place = next(reversed(self.files.find(f"~/.cargo/registry/src/*/{crate}-[0-9]*/Cargo.toml")), "")
        for table in path.split(","):
            found: Any = self.document(place)
            for key in table.split("."):
                found = found.get(key, {}) if isinstance(found, dict) else {}
            yield from (entry.get("name", "") for entry in found) if isinstance(found, list) else found


def most_alike(word: str, words: Sequence[str], least: float = 0.0) -> str:
    """The word that is most like another: by what they have in common, and by how they begin; empty below ``least``."""

    def alike(other: str) -> float:
        a, b = word.lower(), other.lower()
        return (
            SequenceMatcher(None, a, b).ratio()
            + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))) / 7
        )

    there = [other for other in words if alike(other) >= least]
    return max(there, key=lambda other: (alike(other), other), default="")


def filled(text: str, groups: Mapping[str, str]) -> str:
    """The arguments of a row with what its line names in place of ``<name>``."""
    return re.sub(r"<(\w+)>", lambda found: groups.get(found[1], ""), text)
