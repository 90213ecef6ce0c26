"""What the ``link`` commands share: which library is meant."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashdepot.api import libraries as api
from flashdepot.cli import options as o
from flashdepot.cli.common import depot_option, host_option, load_host, open_depot, options, quiet_option
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IncompatibleError
from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.link.shell import Shell
from flashdepot.model.library_request import LibraryRequest
from flashdepot.resolve.words import library_request

if TYPE_CHECKING:
    from flashdepot.toolchain.zig import Zig

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
    o.yes_option,
    o.selection_options,
    host_option,
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
    yes: bool,
    host_file: Path | None,
    depot: Path | None,
    quiet: bool,
    **words: str | None,
) -> LinkableLibrary:
    """The library that the options name, or the one that ``get`` takes for them. Nothing is built unless asked for.

    :raises UsageError: for a folder that holds no library, or options that contradict each other.
    :raises IncompatibleError: when the depot has none that serves; the hint is the command that makes one.
    """
    events = Terminal(quiet=quiet, may_ask=True, yes=yes)
    host = load_host(host_file)
    if library is not None:
        return api.link(library_request(**words), library=library, host=host, events=events)
    opened = open_depot(depot)
    try:
        return api.link(o.with_project(words), may_build=may_build, host=host, depot=opened, events=events)
    except IncompatibleError as error:
        make = get_command(library_request(**words), host_file, depot)
        hint = error.hint or f"Make it first: {make}   (or add --get to this command)"
        raise IncompatibleError(error.message, hint=hint) from None


def zig_source(depot: Path | None, *, quiet: bool) -> Callable[[], Zig]:
    """Gives the zig in the depot, which is fetched first where it is not there."""
    return lambda: api.zig(depot=open_depot(depot), events=Terminal(quiet=quiet))


def get_command(request: LibraryRequest, host_file: Path | None, depot: Path | None) -> str:
    """The ``get`` command line of the same words."""
    words = ["flashdepot", "get"]
    given = {
        **{name.replace("_", "-"): word for name, word in request.words().items()},
        "host": host_file,
        "depot": depot,
    }
    for name, value in given.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)
