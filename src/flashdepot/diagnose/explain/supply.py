"""What an index supplies in place of what was asked for: another Python, another release, or that there is none; as commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flashdepot.diagnose.explain.command import code_of
from flashdepot.diagnose.explain.edits import Edits
from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.releases import NEWEST, Here, Releases, chosen, holds
from flashdepot.diagnose.explain.requested import Requested
from flashdepot.diagnose.explain.rules import LogRule
from flashdepot.diagnose.explain.shell import UserShell

_NOT_FOUND = "version-not-published"
_OF_UV = re.compile(r"uv (?:run|sync|lock|add)\b")
_OF_THE_PROJECT = re.compile(r"requested Python version|supported Python range|Python requirement")
"""What a resolver says where a project allows a Python that what it asks for does not."""
_BOUNDS = re.compile(r"^(?P<key>\s*(?:requires-python|python)\s*=\s*[\"'])(?P<bounds>[^\"']+)", re.MULTILINE)
"""The Pythons that a project allows."""
_OTHER_INDEX = re.compile(r"(?<![\w-])(?:--index-url|-i)[= ]+(?=\S)")
_WITH_INDEX = ("requirements*.txt", "requirements/*.txt", "*.in", "Dockerfile")
_INSTALLS = re.compile(r"\b(?:install|add|versions|download)\b(?: -\S+)* ")
_WITH_PYTHON = re.compile(r"--python[ =]\S*?3\.(\d+)\b")


class Supply:
    """What an index has of what failed.

    :param built: whether it was found as source, and building that failed.
    :param sought: whether it was looked for, and not found.
    """

    def __init__(self, asked: Requested, shell: UserShell, *, built: bool, sought: bool) -> None:
        self.asked, self.shell, self.built = asked, shell, built
        files = shell.pages.files
        self.project = Releases(asked.name, files[asked.name])
        mine = shell.host and shell.host.platform == shell.platform
        self.here = Here(shell.minor, shell.platform, shell.host.libc if shell.host and mine else None)
        self._own = self.project.pythons(asked.spec, self.here)
        self.pythons = self._own
        """The Pythons with wheels of what was asked for, and, where some are left, of what was asked for with it."""
        for other in shell.asked:
            if other != asked and other.name in files:
                both = self.pythons & Releases(other.name, files[other.name]).pythons(other.spec, self.here)
                self.pythons = both or self.pythons
        self._released = self.project.released(asked.spec)
        self._elsewhere = not sought and not self._released
        """Whether what failed came from another place than the index, which then says little of it."""
        self._is_there = "+" not in asked.spec and self.here.python in self._own
        """Whether the index has what was not found."""

    @property
    def first(self) -> bool:
        """Whether the answer says why it failed: what was asked for has no wheel for this Python and system, and may have others."""
        if self._is_there or self._elsewhere:
            return False
        other_release = not self.built and bool(self.project.newest(self.here))
        return not self.project.exists or bool(self.pythons) or other_release

    @property
    def decides(self) -> bool:
        """Whether the index says all that there is to say of it."""
        return not (self._is_there or self._elsewhere or self.built)

    @property
    def nothing(self) -> str:
        """What there is, where no command is left: none of it is for this Python and system."""
        systems = ", ".join(sorted(self.project.systems(self.asked.spec)))
        has = f"{self.asked} as source only" if self._released else f"no {self.asked}"
        has = f"wheels of {self.asked} for {systems}, none for this Python and system" if systems else has
        return f"{self.shell.pages.index} has {has}: another release, its repository or another index has it, or the rest does without it"

    def commands(self, edits: Edits, line: str) -> Sequence[str]:
        """What makes the failed command find what it asks for, the surest first.

        :param line: the one that decides.
        """
        if self._elsewhere:
            found = [self._release(edits)]
        elif not self.project.exists:
            found = self._without(edits)
        elif self.built and not self.project.has_wheels(""):
            found = []
        elif _OF_THE_PROJECT.search(line) and self.pythons:
            found = [self._with_bounds(edits)]
        elif self._is_there:
            found = [] if self.built else [self._other_index(edits)]
        else:
            found = [self._with_python(edits), self._release(edits)][:: -1 if "+" in self.asked.spec else 1]
            found += [] if self.pythons or self.built else [self._on_other_systems(edits)]
        return [command for command in found if command]

    def is_useless(self, command: str) -> bool:
        """Whether an index has said that a command cannot help."""
        code, project = code_of(command), self.project
        name = rf"(?<![\w/.-]){re.escape(self.asked.name).replace('-', '[-_.]')}(?![\w/-]|\.\w)"
        asks = bool(_INSTALLS.search(code) and re.search(name, code, re.IGNORECASE))
        if not project.exists:
            return asks and not self._elsewhere
        if self._elsewhere or self._is_there or project.has_source(self.asked.spec):
            return False
        python = _WITH_PYTHON.search(code)
        found = not self.here.python or project.newest(self.here) or project.newest_source(self.here)
        return (asks and not found) or bool(python and self.pythons and int(python[1]) not in self.pythons)

    def _remark(self, what: str) -> str:
        return f"   # {self.shell.pages.index} has {what}; then the same command"

    @property
    def _spread(self) -> str:
        """Which Pythons there are wheels for."""
        minors = sorted(self.pythons)
        release = self._released if self.asked.spec else ""
        spread = f"3.{minors[0]}" if len(minors) == 1 else f"3.{minors[0]} to 3.{minors[-1]}"
        return f"wheels of {self.asked.name}{f' {release}' if release else ''} for Python {spread}"

    def _written(self, edits: Edits, old: re.Pattern[str], new: str, why: str, own: Sequence[str]) -> str:
        return edits.written(old, new, f"{self.shell.pages.index} has {why}", own)

    def _with_bounds(self, edits: Edits) -> str:
        """The project's own bounds of Python as narrow as those of what it asks for."""
        first, last = min(self.pythons), max(self.pythons)
        bound = f">=3.{first}" if last >= NEWEST else f">=3.{first},<3.{last + 1}"
        return self._written(edits, _BOUNDS, rf"\g<key>{bound}", self._spread, ("pyproject.toml",))

    def _with_python(self, edits: Edits) -> str:
        """The same with another Python, where the project's own files leave it."""
        python = chosen(self.pythons, self.here.python)
        allowed = _BOUNDS.search(self.shell.files.text("pyproject.toml"))
        if not python or (allowed and not holds(allowed["bounds"], f"{python}.30")):
            return ""
        if "POETRY" in self.shell.tools:
            return self.shell.carried(f"poetry env use {python}{self._remark(self._spread)}", "python")
        if _OF_UV.match(edits.failed) or (self.shell.uv and self.shell.files.find(".python-version")):
            return f"uv python pin {python}{self._remark(self._spread)}"
        image = re.compile(r"(?<=python:)3\.\d+(?:\.\d+)?")
        make = f"uv venv --seed --python {python} .venv-new && . .venv-new/bin/activate{self._remark(self._spread)}"
        return self._written(edits, image, python, self._spread, ("Dockerfile",)) or self.shell.carried(make, "python")

    def _release(self, edits: Edits) -> str:
        """Another release in place of the one that was asked for, where one is there for this Python and system."""
        spec, project = self.asked.spec, self.project
        version, what = project.newest(self.here, spec), f"a wheel of it for this Python 3.{self.here.python}"
        if "+" in spec:
            what = f"this release without {spec[spec.index('+') :]}"
        elif not version and not self._released and not self._elsewhere:
            version, what = project.newest_source(self.here, spec), "this release, as source"
        if not version or not self.here.python:
            return ""
        installed = edits.required(f"pip install {self.asked.name}=={version}   # {self.shell.pages.index} has {what}")
        return self.shell.carried(installed, "python")

    def _without(self, edits: Edits) -> list[str]:
        """What is left where no such project is there: the name that was meant, its repository, or the rest without it."""
        name = self.asked.name
        known = named(name).rebuild
        repository = self.shell.carried(known, "python") if "git+" in known else ""
        return [edits.edit("known", {"other": name}), repository, edits.edit("drop", {"name": name})]

    def _other_index(self, edits: Edits) -> str:
        """What is there for this Python and system was not found: another index was asked, or pip knows no newer wheels."""
        what = f"wheels of {self.asked.name} for this Python"
        newer = f"python -m pip install -U pip{self._remark(f'{what}, whose names an old pip does not know')}"
        of_pip = self.shell.carried(newer, "python") if "PIP" in self.shell.tools else ""
        return self._written(edits, _OTHER_INDEX, "--extra-index-url ", what, _WITH_INDEX) or of_pip

    def _on_other_systems(self, edits: Edits) -> str:
        """The requirement for the systems that there are wheels for, where this is another."""
        systems, system = self.project.systems(self.asked.spec), self.here.platform.system
        if not systems or system in systems or self.project.has_source(self.asked.spec):
            return ""
        return edits.edit("marker !=", {"name": self.asked.name, "system": system})


def supply_of(asked: Requested | None, shell: UserShell, rule: LogRule | None = None) -> Supply | None:
    """What an index has of what was asked for; ``None`` where none has answered.

    :param rule: whose line says what failed; without one, a build did.
    """
    if not asked or asked.name not in shell.pages.files:
        return None
    return Supply(asked, shell, built=not (rule and rule.unasked), sought=bool(rule and rule.id == _NOT_FOUND))
