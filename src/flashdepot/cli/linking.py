"""What the ``link`` commands share: which library is meant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from flashdepot.api import libraries as api
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli import options as o
from flashdepot.cli.common import depot_option, named_depot, open_depot, options, quiet_option
from flashdepot.cli.environment import machine_options
from flashdepot.cli.forecast_page import tell as tell_plan
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IncompatibleError
from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.link.shell import Shell
from flashdepot.model.command import Command
from flashdepot.model.host import HostRecord
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.limits import Limits
from flashdepot.resolve.words import library_request

if TYPE_CHECKING:
    from flashdepot.toolchain.zig import Zig

_ANY = LibraryRequest()

library_options = options(
    click.option(
        "--library",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="A folder that 'get' or 'vendor' wrote; --target chooses among several.  [default: the library that 'get' takes "
        "from the depot]",
    ),
    click.option(
        "--get", "may_build", is_flag=True, help="If the depot has no library that fits, build one as 'get' does."
    ),
    o.build_options,
    o.dry_run_option,
    o.selection_options,
    machine_options,
    depot_option,
    quiet_option,
)
"""Either a folder, or what ``get`` takes. Their values are the arguments of :func:`linkable`."""


kind_options = options(
    click.option("--shared", "kind", flag_value=LinkKind.SHARED.value, help="Link the shared library."),
    click.option("--static", "kind", flag_value=LinkKind.STATIC.value, help="Link the static library."),
)
"""The argument ``kind``; ``None`` where nothing was said."""


def shell_here() -> Shell:
    """The shell that lines are printed for: what runs them is this machine, whatever the library is for."""
    return Shell.of("windows" if sys.platform == "win32" else "linux")


def linkable(
    *,
    library: Path | None,
    may_build: bool,
    limits: Limits,
    dry_run: bool,
    host: HostRecord | None,
    depot: Path | None,
    quiet: bool,
    otherwise: LibraryRequest = _ANY,
    **words: str | None,
) -> LinkableLibrary:
    """The library that the options name, or the one that ``get`` takes for them. Nothing is built unless asked for.

    :param otherwise: what the program calls, where the options name no selection.

    :raises UsageError: for a folder that holds no library, or options that contradict each other.
    :raises IncompatibleError: when the depot has none that serves; the hint is the command that makes one.
    """
    events = Terminal(quiet=quiet, may_ask=True)
    if library is not None:
        named = api.link(library_request(**words), library=library, host=host, events=events)
        return _tell(LibraryPlan(stored=named.manifest)) if dry_run else named
    opened, request = open_depot(depot), o.with_project(words)
    if dry_run and may_build:
        asked = request if request.names_selection else request.or_else(otherwise)
        _tell(api.plan_library(asked, host=host, depot=opened, limits=limits, events=events))
    try:
        found = api.link(
            request,
            may_build=may_build,
            otherwise=otherwise,
            host=host,
            depot=opened,
            limits=limits,
            events=events,
        )
    except IncompatibleError as error:
        make = get_command(library_request(**words))
        hint = error.hint or f"Make it first: {make}   (or add --get to this command)"
        raise IncompatibleError(error.message, hint=hint) from None
    if dry_run:
        _tell(LibraryPlan(stored=found.manifest))
    return found


def _tell(plan: LibraryPlan) -> NoReturn:
    """The answer of ``--dry-run``, which ends the command."""
    context = click.get_current_context()
    tell_plan(plan, as_json=context.params["as_json"])
    context.exit()


def zig_source(depot: Path | None, *, quiet: bool) -> Callable[[], Zig]:
    """Gives the zig in the depot, which is fetched first where it is not there."""
    return lambda: api.zig(depot=open_depot(depot), events=Terminal(quiet=quiet))


def get_command(request: LibraryRequest) -> Command:
    """The ``get`` of the same words, machine and depot."""
    params = click.get_current_context().params
    named = {name: params[name] for name in ("glibc", "gpu", "driver")}
    return Command("get", {**request.words(), **named, "host": params["host_file"], "depot": named_depot()})
