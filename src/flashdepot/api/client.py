"""One object for scripts and notebooks: a machine, an environment and a depot, and what flashdepot does with them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from flashdepot import api
from flashdepot.api.acquire import open_depot
from flashdepot.errors import UsageError, not_one_of
from flashdepot.events import Events
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Compiling, Farm, Limits, parse_size
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.facts import Given, NamedFacts
from flashdepot.resolve.library import LibraryResult
from flashdepot.resolve.project import library_request

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    from flashdepot.api.acquire import How, LibraryPlan
    from flashdepot.api.environments import InstallPlan, InstallResult
    from flashdepot.api.libraries import WheelResult
    from flashdepot.diagnose.check.run import Report
    from flashdepot.diagnose.explain import LogReport
    from flashdepot.link.library import LinkArguments
    from flashdepot.model.candidate import Plan
    from flashdepot.model.diagnosis import Diagnosis

    class Words(TypedDict, total=False):
        """What a library must have, in the words of the command line; a list stands for words joined by commas."""

        upstream: str | None
        profile: str | None
        arch: str | float | Sequence[str | float] | None
        passes: str | Sequence[str] | None
        head_dims: str | int | Sequence[int] | None
        dtypes: str | Sequence[str] | None
        features: str | Sequence[str] | None
        families: str | Sequence[str] | None
        cuda: str | None
        target: str | None


class PythonWarnings(Events):
    """Warnings are Python's; notes and progress are not heard, and no question is answered with yes."""

    def warn(self, text: str) -> None:
        """A problem that did not stop the work."""
        level, frame = 2, sys._getframe(1)  # noqa: SLF001  (the line that called flashdepot is meant, however deep it warns)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("flashdepot."):
            level, frame = level + 1, frame.f_back
        warnings.warn(text, stacklevel=level)


class Client:
    """flashdepot for one environment: this machine, the machine of a record, or one that is described.

    Typical usage::

        from flashdepot import Client

        library = Client().get(profile="quick", arch="9.0")
        print(Client(torch="2.9", python_tag="3.13", gpu="9.0", driver="580").resolve().chosen)

    :param depot: the depot's folder; the user's when it is not given.
    :param host: a record that ``flashdepot host --save`` wrote, or its path.
    :param python: interpreter or folder of the Python environment.
    :param build: ``never``, ``ask`` or ``always``: whether compilers may start. ``ask`` asks ``events.confirm``.
    :param jobs: compilers at once. ``memory``: bytes that they may take, or ``"8GB"``. ``farm``: address of a Dask scheduler.
    :param events: hears notes and progress, and answers questions; without it warnings are Python's.

    The others are facts in place of those that are found, spelled as on the command line.
    """

    def __init__(
        self,
        *,
        depot: str | Path | None = None,
        host: HostRecord | str | Path | None = None,
        python: str | None = None,
        torch: str | None = None,
        torch_cuda: str | None = None,
        cxx11_abi: bool | None = None,
        python_tag: str | None = None,
        platform: str | None = None,
        glibc: str | None = None,
        gpu: str | float | Sequence[str | float] = (),
        driver: str | float | None = None,
        build: str | None = None,
        jobs: int | None = None,
        memory: int | str | None = None,
        farm: str | None = None,
        events: Events | None = None,
    ) -> None:
        _require_texts(torch=torch, torch_cuda=torch_cuda, python_tag=python_tag, platform=platform, glibc=glibc)
        gpus = tuple(map(str, (gpu,) if isinstance(gpu, (str, float)) else gpu))
        said = str(driver) if driver is not None else None
        named = NamedFacts(torch, torch_cuda, cxx11_abi, python_tag, platform, glibc, gpus, said)
        self._given = Given(named, Path(host) if isinstance(host, str) else host, python)
        self._events = events or PythonWarnings()
        self._depot = open_depot(Path(depot) if depot is not None else None, self._events)
        may = Compiling.parse(build, "build") if build is not None else None
        if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
            raise UsageError(f"jobs is {jobs!r}: expected a number of compilers, 1 or more.")
        allowed = parse_size(memory) if isinstance(memory, str) else memory
        self._limits = Limits(jobs, allowed, farm=Farm(farm) if farm else None, build=may)

    def __repr__(self) -> str:
        return f"<Client of {self._depot.root}>"

    @property
    def environment(self) -> Environment:
        """The facts that decide what fits, each with where it comes from."""
        return self._given.environment()[1]

    def host(self) -> HostRecord:
        """All that is known of the machine and its Python environment."""
        return self._given.record(self._depot.root)

    def get(self, *, out: str | Path | None = None, **words: Unpack[Words]) -> LibraryResult:
        """A library that serves: stored, a remote's, or built now. ``path`` is its folder, ``out`` a copy that can be moved."""
        folder = Path(out) if out is not None else None
        return api.get(_request(words), out=folder, **self._how())

    def plan(self, **words: Unpack[Words]) -> LibraryPlan:
        """What :meth:`get` would do; nothing is fetched or compiled."""
        return api.plan_library(_request(words), **self._how())

    def wheel(self, out: str | Path = ".", **words: Unpack[Words]) -> WheelResult:
        """A Python wheel for every torch and every Python, in the folder ``out``."""
        return api.wheel(_request(words), out=Path(out), **self._how())

    def link(self, *, static: bool = False, get: bool = True, **words: Unpack[Words]) -> LinkArguments:
        """The library to link a program with, and the arguments for it; with ``get`` it is got where it is not stored."""
        from flashdepot.link.library import LinkKind, link_arguments  # noqa: PLC0415

        found = api.link(_request(words), may_build=get, **self._how())
        return link_arguments(found, LinkKind.STATIC if static else LinkKind.SHARED)

    def resolve(
        self, version: str = "", *, sources: Iterable[str] = (), allow_uncertain: bool = False, **words: Unpack[Words]
    ) -> Plan:
        """Everything that could be installed, judged; ``chosen`` is the one to take."""
        from flashdepot.api.wheels import Question  # noqa: PLC0415

        _require_texts(version=version)
        allow = ("uncertain",) if allow_uncertain else ()
        question = Question(self._given, version, sources=_several(sources), allow=allow)
        return question.ask(_request(words), self._depot, self._events)

    def plan_install(self, *, sources: Iterable[str] = (), **words: Unpack[Words]) -> InstallPlan:
        """Which wheel :meth:`install` would take, and why; nothing is changed."""
        request = api.InstallRequest(_request(words), frozenset(_several(sources)))
        return api.plan_install(request, python=self._real_python(), **self._how(is_here=True))

    def install(
        self, *, sources: Iterable[str] = (), accept_unverified: bool = False, **words: Unpack[Words]
    ) -> InstallResult:
        """Install flash-attn into the Python environment, verified there or undone."""
        request = api.InstallRequest(_request(words), frozenset(_several(sources)))
        how = self._how(is_here=True)
        return api.install(request, python=self._real_python(), accept_unverified=accept_unverified, **how)

    def check(self, files: str | Path | Iterable[str | Path]) -> list[Report]:
        """Whether wheels and libraries fit, by their bytes; a folder is one that :meth:`get` wrote."""
        given = self._given
        return api.check(files, python=given.python, named=given.named, host=given.saved, events=self._events)

    def doctor(self, intention: str = "install", **words: Unpack[Words]) -> list[Diagnosis]:
        """What prevents ``install``, ``build``, ``link`` or ``run``, worst first."""
        from flashdepot.diagnose.case import Intention  # noqa: PLC0415

        known = [member.value for member in Intention]
        if intention not in known:
            raise not_one_of(intention, "an intention", known)
        return api.doctor(Intention(intention), _request(words), host=self.host())

    def explain(self, log: str | Path | BinaryIO) -> LogReport:
        """The causes that a log shows: its text, the path of its file, or a file that is open for bytes."""
        return api.explain(log, self._given.saved)

    def _how(self, *, is_here: bool = False) -> How:
        host = None if is_here else self._given.machine
        return {"depot": self._depot, "limits": self._limits, "events": self._events, "host": host}

    def _real_python(self) -> str | None:
        """The environment to change; :raises UsageError: for one that is only described."""
        if self._given.host is not None or self._given.named != NamedFacts():
            raise UsageError(
                "This Client describes an environment by facts, so nothing can be installed into it.",
                hint="Name a real one: Client(python=PATH)",
            )
        return self._given.python


def _several(names: Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _require_texts(**values: object) -> None:
    """:raises UsageError: for a number: 2.10 would be 2.1."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name} is {value!r}, and a version is a text.", hint=f'{name}="{value}"')


def _request(words: Words) -> LibraryRequest:
    """:raises UsageError: for a keyword or a word that is not known."""

    def spelled(value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        return ",".join(map(str, value)) if isinstance(value, Iterable) else str(value)

    return library_request(**{name: spelled(value) for name, value in words.items()})
