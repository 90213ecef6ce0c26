"""The options that say what is wanted, where it must run, and how to build it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from flashdepot.cli.common import (
    Number,
    depot_option,
    flag,
    host_option,
    into,
    named_depot,
    option,
    options,
    python_option,
)
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.host import saved_host
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import BUILD_VARIABLE, Compiling, Farm, Limits, parse_size, size
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.project import WORDS, find_project, library_request, read_project, require_trust

if TYPE_CHECKING:
    from flashdepot.resolve.facts import Given

Command = TypeVar("Command", bound=Callable[..., Any])


def completed(known: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete the last word of a list joined by commas with one that it lacks; only TAB asks what is known."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        had = before.split(",")
        return [f"{before}{comma}{word}" for word in known() if word.startswith(last) and word not in had]

    return complete


class Wanted(msgspec.Struct, frozen=True):
    """What the options of a selection say, in their words."""

    words: Mapping[str, str | None]

    @property
    def named(self) -> LibraryRequest:
        """What they ask by themselves; :raises UsageError: for a word that is not known."""
        return library_request(**self.words)

    @property
    def request(self) -> LibraryRequest:
        """What they ask, with gaps filled from the nearest ``flashdepot.toml``, if there is one.

        :raises UsageError: for a word that is not known, a fact of another machine than the target's, or a file that asks
            for more than the user has allowed; on a terminal the user is asked first.
        """
        asked = self.named
        path = find_project(Path.cwd())
        if path is not None:
            project = read_project(path)
            if objections := project.objections(asked):
                from flashdepot.cli.trust_commands import ask  # noqa: PLC0415  (most project files need no consent)
                from flashdepot.files.trust import users_consents  # noqa: PLC0415

                consents = users_consents()
                if not consents.given(project.path, project.digest):
                    ask(project, consents, objections)
                require_trust(project, consents, objections)
            asked = asked.or_else(project.asked)
        _require_one_machine(asked)
        return asked

    def each_target(self) -> list[Wanted]:
        """Once for each of the targets that ``--target`` names with commas between."""
        return [Wanted({**self.words, "target": one or None}) for one in (self.words.get("target") or "").split(",")]


def _require_one_machine(request: LibraryRequest) -> None:
    """:raises UsageError: for a driver or C library of one machine with the target of another."""
    said = click.get_current_context().params
    facts = [f"--{name}" for name in ("driver", "glibc") if said.get(name)]
    if not facts or request.target is None:
        return
    from flashdepot.host.probe import this_platform  # noqa: PLC0415

    there = saved_host(said["host_file"]).platform if said.get("host_file") else this_platform()
    if request.target != there:
        raise UsageError(
            f"The library is for {request.target}, and {' and '.join(facts)} would describe {there}.",
            hint="Leave them out, or name the machine that it is for by its record: --host FILE",
        )


class Joined(click.Option):
    """An option that counts as often as it is given: ``--arch 80 --arch 90`` is ``--arch 80,90``."""

    def process_value(self, ctx: click.Context, value: Any) -> str | None:
        """The values, joined by commas."""
        given = super().process_value(ctx, value)
        return ",".join(given) if given else None


def _option(name: str) -> Callable[[Command], Command]:
    word = WORDS[name]
    spelled = [f"--{name.replace('_', '-')}", *(["--platform"] if name == "target" else [])]
    lists: dict[str, Any] = {} if name in {"upstream", "profile", "cuda"} else {"cls": Joined, "multiple": True}
    complete = completed(word.values)
    return click.option(*spelled, shell_complete=complete, metavar=word.metavar, help=word.help, **lists)


selection_options = into("wanted", lambda **words: Wanted(words), *map(_option, WORDS), section="Which library")
"""What a :class:`LibraryRequest` is made of: the argument ``wanted``, a :class:`Wanted`."""

_WHERE, _HOW = "Where it must run", "How it is built"

_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "torch": option("--torch VERSION  PyTorch: 2.8.0+cu128, or none.  [default: the environment's]"),
    "torch_cuda": option(
        "--torch-cuda 12.8|none  CUDA that the named PyTorch is built with.  [default: that of PyPI's build]"
    ),
    "cxx11_abi": option(
        "--cxx11abi/--no-cxx11abi  C++ ABI of the PyTorch build, new or old.", to="cxx11_abi", default=None
    ),
    "python_tag": option("--python-tag 3.12|cp312  Python version or tag; 3.13t is free-threaded."),
    "platform": option("--platform linux-x86_64  Platform, or a wheel's platform tag."),
    "glibc": option("--glibc 2.31  Version of the GNU C library."),
    "gpu": option("--gpu 9.0|h100  Compute capability, or the GPU's name (repeatable).", multiple=True),
    "driver": option("--driver 570.1  Version of NVIDIA's driver."),
}
"""One for each field of :class:`NamedFacts`."""


def _given(*, python: str | None = None, host_file: Path | None, **named: Any) -> Given:
    from flashdepot.resolve.facts import Given, NamedFacts  # noqa: PLC0415  (a depot hit needs neither)

    return Given(NamedFacts(**named), host_file, python)


environment_options = into("given", _given, *_OPTIONS.values(), python_option, host_option, section=_WHERE)
"""For what depends on a Python environment: the argument ``given``, a :class:`Given`."""

MACHINE = ("glibc", "gpu", "driver")


def _host(*, host_file: Path | None, **named: Any) -> HostRecord | None:
    if any(named.values()):
        return _given(host_file=host_file, **named).machine
    return saved_host(host_file) if host_file is not None else None


def named_machine() -> dict[str, Any]:
    """The machine and the depot that were named, as options of another command."""
    said = click.get_current_context().params
    return {**{name: said[name] for name in MACHINE}, "host": said["host_file"], "depot": named_depot()}


machine_options = into("host", _host, *(_OPTIONS[name] for name in MACHINE), host_option, section=_WHERE)
"""For what depends on a machine and not on its Python: the argument ``host``, ``None`` for this machine as it is."""

names_option = option(
    "--names flash-attn-3,flash-attn-4  Also the small wheels that serve programs which import "
    "flash_attn_interface or flash_attn.cute.",
    default="",
)
dry_run_option = options(
    flag("--dry-run  Say what would be fetched and compiled, and how long that takes; do neither."), section=_HOW
)

_LEAST_MEMORY = 100 * 10**6
"""Bytes: less is an amount whose unit was left out."""


def _limits(*, jobs: int | None, memory: str | None, farm: str | None, build: str | None, yes: bool) -> Limits:
    """The limits of a build; :raises UsageError: for an invalid amount of memory, or one that is not for this machine."""
    if farm is not None and memory is not None:
        raise UsageError(
            f"--memory {memory} is for this machine, and --farm {farm} names others.",
            hint="Each worker says what its compilers may take: dask worker ADDRESS --resources memory=32e9",
        )
    allowed = parse_size(memory) if memory else None
    if allowed is not None and allowed < _LEAST_MEMORY:
        raise UsageError(
            f"--memory {memory} is {size(allowed)}, and one compiler takes gigabytes.",
            hint="Name the unit too: --memory 8GB",
        )
    said = Compiling.ALWAYS if yes else Compiling(build) if build else None
    return Limits(jobs, allowed, farm=Farm(farm) if farm is not None else None, build=said or _of_project())


def _of_project() -> Compiling | None:
    """What the nearest ``flashdepot.toml`` says of compiling; one that nobody has trusted cannot say "always"."""
    if os.environ.get(BUILD_VARIABLE) or (path := find_project(Path.cwd())) is None:
        return None
    project = read_project(path)
    if project.build is Compiling.ALWAYS:
        from flashdepot.files.trust import users_consents  # noqa: PLC0415  (few project files say so)

        return project.build if users_consents().given(project.path, project.digest) else None
    return project.build


build_options = into(
    "limits",
    _limits,
    option("-j --jobs N  Number of parallel compilers.  [default: one per core]", type=Number(1)),
    option("--memory 8GB  Memory limit for all compilers together.  [default: what is available, less a reserve]"),
    option(
        "--farm ADDRESS|FILE  Compile on the workers of this Dask cluster: the scheduler's address "
        "(tls://HOST:8786) or its scheduler file; open+ before it allows a network without encryption."
    ),
    option(
        "--build  Whether compilers may start: never, after a yes if it takes over two minutes, or always.  "
        f"[default: {BUILD_VARIABLE}, flashdepot.toml, the user's settings, else ask]",
        type=click.Choice([member.value for member in Compiling]),
    ),
    flag("-y --yes  Compile without asking, however long it takes: --build always."),
    section=_HOW,
)
"""What a build may use of its machine, and whether it may begin: the argument ``limits``."""


class Asked(msgspec.Struct, frozen=True):
    """Which library is asked for, where it must run, and what making it may take."""

    wanted: Wanted
    limits: Limits
    dry_run: bool
    host: HostRecord | None
    depot: Depot

    @property
    def how(self) -> dict[str, Any]:
        """The keywords of the API's functions, apart from the request."""
        return {"host": self.host, "depot": self.depot, "limits": self.limits, "events": terminal()}


library_options = into("asked", Asked, selection_options, build_options, dry_run_option, machine_options, depot_option)
"""For every command that takes a library: the argument ``asked``, an :class:`Asked`."""
