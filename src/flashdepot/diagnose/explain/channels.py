"""What the channels of conda have, as conda itself read them last: releases and builds of a package, and what asks for another."""

from __future__ import annotations

import contextlib
import glob
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.diagnose.explain.command import code_of
from flashdepot.diagnose.explain.places import Places
from flashdepot.diagnose.explain.releases import nearest
from flashdepot.diagnose.explain.shell import Files

_CACHES = (
    "$CONDA_PKGS_DIRS",
    "~/.conda/pkgs",
    "$CONDA_PREFIX/pkgs",
    "$CONDA_PREFIX/../../pkgs",
    "~/*conda*/pkgs",
    "~/*forge*/pkgs",
    "/opt/conda/pkgs",
)
"""Where conda keeps packages, and next to them what it read of its channels."""  # fmt: skip
_FOLDER = re.compile(r"(?:file://)(/[^\s'\"]+)")
_CUDA = re.compile(r"cuda|cu1\d\d")
"""What the name of a build has that is for CUDA."""


class Build(msgspec.Struct, frozen=True):
    """One file of a channel."""

    version: str
    build: str


class Channels:
    """What is known here of the channels that conda asked.

    :param said: the log's lines, the command and the files that name channels, of which a folder is read itself.
    """

    def __init__(self, files: Files, said: str) -> None:
        self.files = files
        folders = (
            f"{glob.escape(found.rstrip('/'))}/*/repodata.json" for found in dict.fromkeys(_FOLDER.findall(said))
        )
        patterns = (*folders, *(f"{place}/cache/*.json" for place in _CACHES))
        self._places = list(
            dict.fromkeys(path for pattern in patterns for path in files.find(pattern) if ".info." not in path)
        )

    def builds(self, name: str) -> list[Build]:
        """The files of a package, in the order of the channels' lists."""
        named = re.compile(rb'"' + re.escape(name).encode() + rb'-([^-"]+)-([^-"]+)\.(?:conda|tar\.bz2)": ?\{')
        return [Build(*map(bytes.decode, found.groups())) for data in self._lists() for found in named.finditer(data)]

    def asks_for(self, need: str, names: Iterable[str]) -> str:
        """The first of some packages whose files all ask for another one; empty for none."""
        for name in names:
            files = [entry for entry in self._entries(name) if entry]
            if files and all(any(one.split()[0] == need for one in entry.get("depends", ())) for entry in files):
                return name
        return ""

    def _lists(self) -> Iterator[bytes]:
        for place in filter(Path.is_file, map(Path, self._places)):
            with contextlib.suppress(OSError):  # another user's
                yield place.read_bytes()

    def _entries(self, name: str) -> Iterator[dict[str, Any]]:
        named = re.compile(rb'"' + re.escape(name).encode() + rb'-[^-"]+-[^-"]+\.(?:conda|tar\.bz2)": ?(\{[^{}]*\})')
        for data in self._lists():
            for found in named.finditer(data):
                yield msgspec.json.decode(found[1])


_REQUIREMENTS = ("*.in", "requirements*.txt", "requirements/*.txt")
_OTHER_LISTS = ("pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml")
"""What else names the packages to install."""
_ENVIRONMENTS = ("environment*.y*ml", "env*.y*ml", "*/environment*.y*ml", "conda*.y*ml")
_PUBLISHED = {"pytorch-cuda": ("11.6", "11.7", "11.8", "12.1", "12.4")}
"""Packages of which the channel that has them gets no more releases (the channel pytorch, 2026-11)."""
_USUAL_BUILDS = {"pytorch": "*cuda*", "libtorch": "*cuda*"}
_ANY = r"(?:\s*(?:[<>!~]=|={1,2}|[<>])\s*[\w.*]+)*"


class OfConda(Places):
    """A project of conda's: what its file or the failed command asks the channels for."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The files of requirements: those that the failed command names, then those that projects have."""
        return (
            *re.findall(r" (?:-r|--requirements?)[ =]?(\S+)", f"{self.failed} {self.shell.command}"),
            *_REQUIREMENTS,
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """The files that name the packages to install."""
        return (*self.requirements, *_OTHER_LISTS)

    @property
    def _files(self) -> tuple[str, ...]:
        named = re.findall(r" (?:-f|--file)[ =]?(\S+)", self.failed)
        return (*named, *_ENVIRONMENTS)

    @property
    def channels(self) -> Channels:
        """The channels of the log, the command and the file."""
        files = (self.files.text(path) for pattern in self._files for path in self.files.find(pattern))
        return Channels(self.files, " ".join([self.failed, self.settings.lines_said, *files]))

    def asking_for(self, name: str) -> re.Pattern[str]:
        """A word of conda's that asks for a package, with or without its channel and bounds."""
        word = rf"(?<![\w./:=-])(?P<quote>['\"]?)(?P<name>(?:[\w-]+::)?{re.escape(name)})(?P<spec>{_ANY})(?P=quote)(?=\s|$)"
        return re.compile(word, re.IGNORECASE)

    def asked_otherwise(self, changes: Mapping[str, str], remark: str) -> str:
        """What asks for packages of conda's, the command or the file, with other words for them; without one whose word is empty."""
        code = self.failed
        for name, new in changes.items():
            code = self.asking_for(name).sub(new and shlex.quote(new), code)
        if code != self.failed:
            return f"{re.sub('  +', ' ', code).strip()}   # {remark}"
        edits = []
        for name, new in changes.items():
            listed = re.compile(rf"^(?P<begin>\s*-\s+){self.asking_for(name).pattern}.*$", re.IGNORECASE)
            edits.append(self.written(listed, new and rf"\g<begin>{new}", remark, self._files))
        written = [edit for edit in edits if edit]
        together = [*map(code_of, written[:-1]), *written[-1:]]
        return " && ".join(together) if not self.lacks_sed else next(iter(written), "")

    def _channel(self, _given: str, groups: Mapping[str, str]) -> str:
        """A package of a release that no channel has, of the nearest that one has."""
        name, asked = groups["name"], groups.get("version", "")
        there = {build.version for build in self.channels.builds(name)} or {*_PUBLISHED.get(name, ())}
        version = nearest(f"=={asked}" if asked else "", there)
        return (
            self.asked_otherwise({name: f"{name}={version}"}, f"the channels have {name} {version}") if version else ""
        )

    def _cuda_builds(self, _given: str, _groups: Mapping[str, str]) -> str:
        """What asks conda for packages of which it took builds for the CPU, with builds for CUDA."""
        names, channels, changes = self.shell.cpu_builds, self.channels, dict[str, str]()
        asked = [name for name in self.names_asked() if name != "cpuonly"]
        if "cpuonly" in self.names_asked():
            changes["cpuonly"] = ""
        elif "cpuonly" in names and (asking := channels.asks_for("cpuonly", asked)):
            remark = f"{asking} asks for cpuonly: builds without CUDA; then by pip: pip install {asking}"
            return self.asked_otherwise({asking: ""}, remark)
        for name in (name for name in names if name in asked):
            builds = [_CUDA.search(file.build) for file in channels.builds(name)]
            of_cuda = next((found[0] for found in reversed(builds) if found), "")
            build = f"*{of_cuda}*" if of_cuda else "" if builds else _USUAL_BUILDS.get(name, "")
            changes |= {name: f"{name}=*={build}"} if build else {}
        if changes:
            return self.asked_otherwise(changes, "builds for CUDA, where conda took those for the CPU")
        of_pip = re.compile(r"(?<=whl/)cpu(?![\w-])|(?<=\d)\+cpu\b")
        return self.written(of_pip, lambda found: "cu128" if found[0] == "cpu" else "", "without CUDA", self.lists)

    def names_asked(self) -> list[str]:
        """The packages that the command or the file asks for."""
        lines = [line for _, _, line in self.lines(self._files)]
        listed = re.findall(r"^\s*-\s+(?:[\w-]+::)?([A-Za-z][\w.-]*)", "\n".join(lines), re.MULTILINE)
        return [*listed, *re.findall(r"(?<= )['\"]?([a-z][\w.-]*)(?=[=<>'\" ]|$)", self.failed)]
