"""What an index supplies in place of what was asked for: another Python, another release, another system's package; as commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flashdepot.diagnose.explain.command import code_of
from flashdepot.diagnose.explain.edits import Edits
from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.releases import NEWEST, Here, Releases, Requested, chosen, holds
from flashdepot.diagnose.explain.shell import UserShell
from flashdepot.model.target import Platform

_LINUX = Platform("linux", "x86_64")
_OF_UV = re.compile(r"uv (?:run|sync|lock|add)\b")
_OF_THE_PROJECT = re.compile(r"requested Python version|supported Python range|Python requirement")
"""What a resolver says where a project allows a Python that what it asks for does not."""
_OTHER_INDEX = re.compile(r"(?<![\w-])(?:--index-url|-i)[= ]+(?=\S)")
_INSTALLS = re.compile(r"\b(?:install|add|versions|download)\b(?: -\S+)* ")
_WHEELS_OF_PYTHON = re.compile(r"--python[ =]\S*?3\.(\d+)\b")


class Supply:
    """The answer of an index to what failed; without an answer it knows nothing and has no commands.

    :param python: the minor release of Python 3 that failed; 0 where it is not known.
    :param built: whether what was asked for was found as source, and building that failed.
    """

    def __init__(self, asked: Requested | None, shell: UserShell, python: int, *, built: bool) -> None:
        self.asked = asked or Requested("")
        self.shell, self.built = shell, built
        pages = shell.pages
        self.project = Releases(self.asked.name, pages[self.asked.name]) if self.asked.name in pages else None
        host = shell.host
        mine = host.platform if host else _LINUX
        place = (
            Platform("windows", "x86_64")
            if shell.windows
            else Platform("linux", mine.machine)
            if shell.elsewhere
            else mine
        )
        self.here = Here(python, place, host.libc if host and place == mine else None)
        self._others = [
            (Releases(o.name, pages[o.name]), o.spec) for o in shell.asked if o != self.asked and o.name in pages
        ]

    @property
    def pythons(self) -> frozenset[int]:
        """The Pythons with wheels of what was asked for, and, where some are left, of what was asked for with it."""
        mine = self._own_pythons
        for other, spec in self._others:
            mine = mine & other.pythons(spec, self.here) or mine
        return mine

    def commands(self, edits: Edits, line: str) -> Sequence[str]:
        """What makes the failed command find what it asks for, the surest first.

        :param line: the one that decides.
        """
        project, spec, built = self.project, self.asked.spec, self.built
        if project is None or (built and not project.has_wheels("")):
            return ()
        if not project.exists:
            return self._without(edits)
        if _OF_THE_PROJECT.search(line) and self.pythons:
            return [*filter(None, [self._bounds(edits)])]
        if self._is_there:
            return () if built else self._elsewhere(edits)
        python = chosen(self.pythons, self.here.python)
        changed = self._with_python(python, edits) if python else ""
        released = self._release(edits)
        other = "" if self.pythons or built else self._on_this_system(edits)
        return [
            command for command in (*([released, changed] if "+" in spec else [changed, released]), other) if command
        ]

    @property
    def first(self) -> bool:
        """Whether the answer says why it failed: what was asked for has no wheel for this Python and system, and may have others."""
        project = self.project
        if project is None or self._is_there:
            return False
        return not (self.built and project.exists) or project.has_wheels(self.asked.spec)

    @property
    def _is_there(self) -> bool:
        """Whether the index has what was not found."""
        return "+" not in self.asked.spec and self.here.python in self._own_pythons

    @property
    def _own_pythons(self) -> frozenset[int]:
        return self.project.pythons(self.asked.spec, self.here) if self.project else frozenset()

    def is_useless(self, command: str) -> bool:
        """Whether an index has said that a command cannot help."""
        code, project = code_of(command), self.project
        if project is None:
            return False
        name = rf"(?<![\w/.-]){re.escape(self.asked.name).replace('-', '[-_.]')}(?![\w/-]|\.\w)"
        asks = bool(_INSTALLS.search(code) and re.search(name, code, re.IGNORECASE))
        if not project.exists:
            return asks
        if self._is_there or project.has_source(self.asked.spec):
            return False
        python = _WHEELS_OF_PYTHON.search(code)
        none_fits = self.here.python != 0 and not project.newest(self.here)
        return (asks and none_fits) or bool(python and int(python[1]) not in self.pythons)

    def _said(self, what: str) -> str:
        return f"the index has {what}" if any("INDEX" in name for name in self.shell.variables) else f"PyPI has {what}"

    def _spread(self) -> str:
        """Which Pythons there are wheels for, as a remark."""
        minors = sorted(self.pythons)
        release = self.project.released(self.asked.spec) if self.project and self.asked.spec else ""
        spread = f"3.{minors[0]}" if len(minors) == 1 else f"3.{minors[0]} to 3.{minors[-1]}"
        return self._said(f"wheels of {self.asked.name}{f' {release}' if release else ''} for Python {spread}")

    def _bounds(self, edits: Edits) -> str:
        """The project's own bounds of Python as narrow as those of what it asks for."""
        first, last = min(self.pythons), max(self.pythons)
        old = re.compile(r"^(\s*(?:requires-python|python)\s*=\s*[\"'])[^\"']+")
        bound = f">=3.{first}" if last >= NEWEST else f">=3.{first},<3.{last + 1}"
        return edits.written(old, rf"\g<1>{bound}", self._spread(), ("pyproject.toml",))

    def _with_python(self, python: str, edits: Edits) -> str:
        """The same with another Python, where the project's own files leave it."""
        remark = self._spread()
        failed, project = edits.failed, self.shell.files.text("pyproject.toml")
        bounds = re.search(r"^\s*(?:requires-python|python)\s*=\s*[\"']([^\"'\^~]+)[\"']", project, re.MULTILINE)
        if bounds and not holds(bounds[1], f"{python}.30"):
            return ""
        if "POETRY" in self.shell.tools:
            return self.shell.carried(f"poetry env use {python}   # {remark}; then the same command", "python")
        if _OF_UV.match(failed) or (self.shell.uv and self.shell.files.find(".python-version")):
            return f"uv python pin {python}   # {remark}; then the same command"
        image = edits.written(re.compile(r"(?<=python:)3\.\d+(?:\.\d+)?"), python, remark, ("Dockerfile",))
        make = f"uv venv --seed --python {python} .venv-new && . .venv-new/bin/activate"
        return image or self.shell.carried(f"{make}   # {remark}; then the same command", "python")

    def _release(self, edits: Edits) -> str:
        """Another release in place of the one that was asked for, where one has a wheel for this Python and system."""
        spec, project = self.asked.spec, self.project
        if project is None or not self.here.python:
            return ""
        plain = project.newest(self.here, spec) if "+" in spec else ""
        version = plain or project.newest(self.here)
        if not version:
            return ""
        remark = self._said(f"a wheel of it for {'' if plain else 'this '}Python 3.{self.here.python}")
        if plain:
            remark = self._said(f"this release without {spec[spec.index('+') :]}")
        requirement = f"{self.asked.name}=={version}"
        if "POETRY" in self.shell.tools:
            return f"poetry add {requirement}   # {remark}; then the same command"
        return self.shell.carried(edits.required(f"pip install {requirement}   # {remark}"), "python")

    def _without(self, edits: Edits) -> Sequence[str]:
        """What is left where no such project is there: its repository, or the rest without it."""
        name = self.asked.name
        known = named(name).rebuild
        repository = known if "git+" in known and "flashdepot" not in known else ""
        own = edits.edit("known", {"other": name})
        drop = edits.edit("drop", {"name": name})
        return [command for command in (own, repository and self.shell.carried(repository, "python"), drop) if command]

    def _elsewhere(self, edits: Edits) -> Sequence[str]:
        """What is there for this Python and system was not found: another index was asked, or pip knows no newer wheels."""
        said = self._said(f"wheels of {self.asked.name} for this Python")
        added = edits.written(_OTHER_INDEX, "--extra-index-url ", said, (*_REQUIREMENTS, "pip.conf", "Dockerfile"))
        if added:
            return [added]
        if "PIP" not in self.shell.tools:
            return []
        newer = self.shell.carried(
            f"python -m pip install -U pip   # {said}, whose names an old pip does not know; then the same command",
            "python",
        )
        return [*filter(None, [self._on_this_system(edits)]), newer]

    def _on_this_system(self, edits: Edits) -> str:
        """The package that stands for one that has no wheels for a system, or the requirement for the others only."""
        systems = self.project.systems(self.asked.spec) if self.project else ()
        stand_in = _STAND_INS.get(self.asked.name, "")
        if stand_in and "windows" not in systems:
            return edits.edit(f"instead {stand_in} has wheels for Linux only", {"name": self.asked.name})
        if (
            not systems
            or self.here.platform.system in systems
            or self.project is None
            or self.project.has_source(self.asked.spec)
        ):
            return ""
        return edits.edit("marker !=", {"name": self.asked.name, "system": self.here.platform.system})


_REQUIREMENTS = ("requirements*.txt", "requirements/*.txt", "*.in")
_STAND_INS = {"triton": "triton-windows"}
"""Packages that have another's part on Windows."""


def python_of(shell: UserShell, said: str) -> int:
    """The minor release of Python 3 that failed: the log's, or that of the environment here; 0 where it is not known.

    :param said: the one that the log names.
    """
    if "POETRY" in shell.tools:
        made = re.search(r"^version\w* = 3\.(\d+)", shell.files.text(".venv/pyvenv.cfg"), re.MULTILINE)
        return int(made[1]) if made else 0
    if found := re.fullmatch(r"3\.(\d+)", said):
        return int(found[1])
    named_by = next((site for site in shell.sites if shell.python), "")
    if found := re.search(r"/python3\.(\d+)/", named_by):
        return int(found[1])
    return shell.host.python.version.numbers[1] if shell.host and shell.host.python else 0
