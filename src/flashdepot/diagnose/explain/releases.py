"""What an index has of a project: its releases, and the Pythons and systems that there are wheels of each for.

Nothing here asks an index. :func:`to_ask` says what a log gives a reason to ask for, and what answers is given back as files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.diagnose.explain.machine import known_names
from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.requested import Requested, in_words
from flashdepot.diagnose.explain.steps import OF_PYTHON, Step
from flashdepot.errors import UsageError
from flashdepot.model.target import Platform, Version
from flashdepot.model.wheel import (
    Interpreter,
    WheelName,
    canonical_name,
    glibc_floor,
    numbers_of,
    platform_of,
    python_fits,
    version_key,
)

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

    from flashdepot.diagnose.explain.shell import Files

_MOST = 6
"""Projects that are asked for because of one log."""
_LOOKED_AT = 3
"""Findings that give a reason to ask."""
_OF_SOURCE = frozenset({"", "flash-attn", "mamba-ssm", "causal-conv1d", "apex"})
"""Packages that indexes have as source only: the rules say what their builds need."""
NEWEST = 14
PYTHONS = range(6, NEWEST + 1)
"""The minor releases of Python 3 that people run (python.org, 2026-11)."""
_USUAL = 12
"""The minor release of Python 3 that most packages of the field have wheels for (PyPI, 2026-11)."""
_ADDED = re.compile(r"^--(?:extra-)?index-url[ =]+([^\s#]+)", re.MULTILINE)
_WHEEL = re.compile(r"(?:^|[\s/'\"`])([A-Za-z][\w.]*-\d[^\s/'\"`]*?\.whl)\b")


class IndexQuestion(msgspec.Struct, frozen=True):
    """The projects that an index is to be asked for.

    ``public`` are known packages of the field. ``others`` are any names that an installer asked an index for, as the log shows;
    ``index`` is the address of that index, empty for the user's own: another one's names are nobody else's business.
    """

    public: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    index: str = ""
    added: tuple[str, ...] = ()
    """Indexes that the project's own files add to the user's."""


class IndexPages(msgspec.Struct, frozen=True):
    """What an index answered: the files of each project, none where there is no such project; ``index`` is what it is called."""

    files: Mapping[str, Sequence[Any]] = {}
    index: str = "PyPI"


Ask = Callable[[IndexQuestion], IndexPages]


def ask_nobody(_: IndexQuestion) -> IndexPages:
    """No index, as on a machine without a network."""
    return IndexPages()


class Here(msgspec.Struct, frozen=True):
    """What a wheel has to fit: ``python`` is the minor release of Python 3 (0: not known), ``libc`` the GNU C library's."""

    python: int
    platform: Platform
    libc: Version | None = None


class _File(msgspec.Struct, frozen=True):
    version: str
    wheel: WheelName | None
    requires: str

    def serves(self, python: int, here: Here) -> bool:
        """Whether it is a wheel that this system and a minor release of Python 3 take."""
        return self.wheel is not None and _is_for(self.wheel, here) and self.is_for_python(python)

    def is_for_python(self, python: int) -> bool:
        wheel, interpreter = self.wheel, Interpreter("cpython", (3, python))
        tags = ((p, a) for p in wheel.python.split(".") for a in wheel.abi.split(".")) if wheel else ()
        fits = wheel is None or any(python_fits(tag, abi, interpreter) for tag, abi in tags)
        return fits and holds(self.requires, f"3.{python}.30")


class Releases:
    """A project as an index lists it."""

    def __init__(self, name: str, files: Iterable[DistributionPackage]) -> None:
        self.name, listed = name, list(files)
        self.exists = bool(listed)
        self._files = [read for file in listed if not file.is_yanked and (read := _read(file))]

    def pythons(self, spec: str, here: Here) -> frozenset[int]:
        """The minor releases of Python 3 that some release has a wheel for, of those asked for and for this system."""
        files = [file for file in self._asked(spec) if file.wheel and _is_for(file.wheel, here)]
        return frozenset(n for n in PYTHONS if any(file.is_for_python(n) for file in files))

    def newest(self, here: Here, spec: str = "") -> str:
        """The release with a wheel for this Python and system that is nearest to what was asked for; the newest without bounds; or empty."""
        return nearest(
            spec, {f.version for f in self._asked(spec if "+" in spec else "") if f.serves(here.python, here)}
        )

    def newest_source(self, here: Here, spec: str = "") -> str:
        """The same for a release that is there as source for this Python."""
        return nearest(
            spec, {file.version for file in self._files if file.wheel is None and file.is_for_python(here.python)}
        )

    def released(self, spec: str) -> str:
        """The newest release of those asked for, as wheels or as source; or empty."""
        return max({file.version for file in self._asked(spec)}, key=version_key, default="")

    def has_wheels(self, spec: str) -> bool:
        """Whether there are wheels of what was asked for, for any Python and system."""
        return any(file.wheel for file in self._asked(spec))

    def has_source(self, spec: str) -> bool:
        """Whether there is source of what was asked for."""
        return any(not file.wheel for file in self._asked(spec))

    def systems(self, spec: str) -> frozenset[str]:
        """The systems that it has wheels for: linux, windows, darwin; all three where one is for any."""
        tags = {tag for file in self._asked(spec) if file.wheel for tag in file.wheel.platform.split(".")}
        places = {place.system for tag in tags if (place := platform_of(tag))}
        return frozenset({"linux", "windows", "darwin"} if "any" in tags else places)

    def _asked(self, spec: str) -> Sequence[_File]:
        """The files of the releases that were asked for; of a build with a local version those of the release itself."""
        return [file for file in self._files if holds(spec.partition("+")[0], file.version)]


def wheel_serves(wheel: WheelName, here: Here) -> bool:
    """Whether a wheel is for a Python and a system."""
    return _File(wheel.version, wheel, "").serves(here.python, here)


def nearest(spec: str, versions: Iterable[str]) -> str:
    """The version that does most likely for what was asked for: of its series, of the next one, or of the last before it; or empty.

    :param spec: what was asked for; without one version in it, the newest is taken.
    """
    asked = re.fullmatch(r"={1,3}\s*v?(\d[\w.]*?)(?:\.\*|\+.*)?", spec)
    want = numbers_of(asked[1]) if asked else ()

    def closeness(version: str) -> tuple[Any, ...]:
        numbers = numbers_of(version)
        series, same = (
            _series(numbers),
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(want, numbers, strict=False))),
        )
        above = series >= _series(want)
        steps = tuple(-n for n in series) if above and want else series
        return not _is_early(version), bool(want) and numbers[:1] == want[:1], above, steps, same, version_key(version)

    return max(versions, key=closeness, default="")


def _series(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers[: 2 if any(numbers[:2]) else 3]


def chosen(pythons: frozenset[int], failed: int) -> str:
    """The release of Python to take, of those that serve, not that which failed: the newest up to the usual one; or empty."""
    others = pythons - {failed}
    usual = [n for n in others if n <= _USUAL]
    return f"3.{max(usual) if usual else min(others)}" if others else ""


def to_ask(outcome: RuleOutcome) -> Sequence[Requested]:
    """What a log gives a reason to ask for, what failed first, and what was asked for with it."""
    of_hits = (asked_for(hit, outcome) for hit in outcome.hits[:_LOOKED_AT])
    failed = [asked for asked in (*of_hits, None if outcome.hits else built_last(outcome)) if asked]
    pinned = (Requested(name, spec) for name, spec in outcome.asked.items() if spec.startswith("=="))
    return [*dict.fromkeys((*failed, *pinned))][:_MOST] if failed else []


def question(asked: Sequence[Requested], outcome: RuleOutcome, files: Files) -> IndexQuestion:
    """What may be sent to an index: a name that is not of a known package only where an installer asked for it."""
    names = dict.fromkeys(one.name for one in asked)
    public = tuple(name for name in names if name in _public())
    said = {one.name for line in outcome.errors for one in in_words(line.text)} | {*outcome.asked}
    said |= {one.name for hit in outcome.hits for one in in_words(hit.line.text)}
    return IndexQuestion(
        public,
        tuple(name for name in names if name in said and name not in public),
        index_named(outcome, files.text),
        indexes_of(files),
    )


def index_named(outcome: RuleOutcome, text_of: Callable[[str], str]) -> str:
    """The address of the index that was asked in place of the user's own, by the log or the project; empty for none.

    :param text_of: reads a file of the project.
    """
    if outcome.facts.index:
        return outcome.facts.index.rstrip("/")
    return next((url for url, default in _project_indexes(text_of) if default), "")


def indexes_of(files: Files) -> tuple[str, ...]:
    """The addresses of the indexes that a project's own files add to the user's, for any package; not those of what a log names."""
    listed = (
        files.text(path) for pattern in ("requirements*.txt", "requirements/*.txt") for path in files.find(pattern)
    )
    added = (found[1] for text in listed for found in _ADDED.finditer(text))
    return tuple(dict.fromkeys([*(url for url, _ in _project_indexes(files.text)), *added]))


def _project_indexes(text_of: Callable[[str], str]) -> Iterator[tuple[str, bool]]:
    """The indexes of uv, Poetry, PDM and Pipenv in a project, and whether each takes the usual one's place."""
    for place in ("pyproject.toml", "uv.toml", "Pipfile"):
        document: dict[str, Any] = {}
        with suppress(msgspec.DecodeError):
            document = msgspec.toml.decode(text_of(place), type=dict[str, Any])
        tools = document.get("tool", {})
        tables = (document, *(tools.get(name, {}) for name in ("uv", "poetry", "pdm")))
        rows = (row for table in tables for key in ("index", "source") for row in table.get(key, ()))
        for row in rows:
            kind = row.get("priority", "")
            if row.get("url") and not row.get("explicit") and kind != "explicit":
                yield row["url"].rstrip("/"), bool(row.get("default")) or kind in ("default", "primary")


@cache
def _public() -> frozenset[str]:
    return frozenset(map(canonical_name, known_names()))


def asked_for(hit: Hit, outcome: RuleOutcome) -> Requested | None:
    """What an installer asked an index for, or was building of it, when it came to that line; or the wheel that the line names."""
    for text in (hit.line.text, *(line.text for line in outcome.errors)) if hit.rule.unasked else ():
        if found := next(iter(in_words(text)), None):
            return found
    if hit.rule.unasked and (file := _WHEEL.search(hit.line.text)):
        try:
            wheel = WheelName.parse(file[1])
        except UsageError:
            return None
        return Requested(wheel.canonical, f"=={wheel.version}")
    return _of_step(hit.step, outcome) if hit.step and (hit.rule.unasked or hit.step.phase == "build") else None


def built_last(outcome: RuleOutcome) -> Requested | None:
    """What an installer was building at the end of a log."""
    built = (_of_step(step, outcome) for step in reversed(outcome.steps) if step.phase == "build")
    return next(filter(None, built), None)


def _of_step(step: Step, outcome: RuleOutcome) -> Requested | None:
    """The project that a step of an installer is about, where it came from an index."""
    name = canonical_name(step.package) if step.installer in OF_PYTHON and step.phase in ("resolve", "build") else ""
    if name in _OF_SOURCE or name not in outcome.asked:
        return None
    return Requested(name, f"=={step.version}" if re.fullmatch(r"\d[\w.]*", step.version) else outcome.asked[name])


@lru_cache(maxsize=4096)
def holds(spec: str, version: str) -> bool:
    """Whether bounds (PEP 440) have room for a version, an early one too; those that cannot be read have."""
    if not spec:
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415  (most logs ask for nothing)

    try:
        return SpecifierSet(spec).contains(version, prereleases=True)
    except InvalidSpecifier:
        return True


def _read(file: DistributionPackage) -> _File | None:
    """A wheel or an sdist; nothing for what is neither, or has no version that can be compared."""
    version, wheel = file.version or "", None
    if file.filename.endswith(".whl"):
        try:
            wheel = WheelName.parse(file.filename)
        except UsageError:
            return None
        version = wheel.version
    elif not file.filename.endswith((".tar.gz", ".zip", ".tar.bz2")):
        return None
    return _File(version, wheel, file.requires_python or "") if version_key(version) != (-1,) else None


def _is_for(wheel: WheelName, here: Here) -> bool:
    """Whether one of its platform tags is for a system."""
    return any(_tag_fits(tag, here) for tag in wheel.platform.split("."))


def _tag_fits(tag: str, here: Here) -> bool:
    if tag == "any":
        return True
    place, mine = platform_of(tag), here.platform
    if place is None or place.system != mine.system or tag.startswith("musllinux"):
        return False
    floor = glibc_floor(tag)
    machine = {"arm64": "aarch64", "universal2": mine.machine}.get(place.machine, place.machine)
    return machine == mine.machine and not (floor and here.libc and floor > here.libc)


def _is_early(version: str) -> bool:
    return re.search(r"a|b|rc|dev", version) is not None
