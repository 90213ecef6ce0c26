"""What the ``link`` commands share: which library is meant."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from flashdepot.cli import options as o
from flashdepot.cli.common import depot_option, host_option, load_host, open_depot, options, quiet_option, say
from flashdepot.cli.obtaining import need_of, obtain_library
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.host import runtime_facts
from flashdepot.link.library import LinkableLibrary, LinkKind, read_library
from flashdepot.link.shell import Shell
from flashdepot.link.vendor.index import INDEX_NAME
from flashdepot.resolve.library import Rejected, Wish, from_depot

library_options = options(
    click.option(
        "--library",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="A folder that 'get' printed or wrote, or one of 'vendor'.  [default: what 'get' takes from the depot]",
    ),
    click.option("--get", "may_build", is_flag=True, help="Build the library as 'get' does when the depot has none."),
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
    host_file: Path | None,
    depot: str | None,
    quiet: bool,
    **words: str | None,
) -> LinkableLibrary:
    """The library that the options name, or the one that ``get`` takes for them. Nothing is built unless asked for.

    :raises UsageError: for a folder that holds no library, or options that contradict each other.
    :raises IncompatibleError: when the depot has none that serves; the hint is the command that makes one.
    """
    wish = Wish(**words)
    if library is not None:
        if wish != Wish():
            raise UsageError(
                "--library names a folder, and the options of a selection choose from the depot: both were given.",
                hint="Leave one of them out.",
            )
        if (library / INDEX_NAME).is_file():
            from flashdepot.link.vendor.check import choose_vendored  # noqa: PLC0415  (a hit in the depot needs none of it)

            host = load_host(host_file) if host_file else runtime_facts()
            return choose_vendored(library, host, open_depot(depot))
        return read_library(library)
    opened = open_depot(depot)
    need = need_of(wish, host_file, opened, quiet=quiet)
    if may_build:
        result = obtain_library(need, opened, None, None, quiet=quiet, verbose=False)
        return LinkableLibrary(result.path, result.manifest)
    found, rejected = from_depot(need, opened)
    if found is None:
        raise IncompatibleError(
            f"The depot {opened.root} has no library for this. {_nearest(rejected)}".rstrip(),
            hint=f"Make it first: {get_command(wish, host_file, depot)}   (or add --get to this command)",
        )
    if not quiet:
        say(f"Linking {found.path}")
    return LinkableLibrary(found.path, found.manifest)


def get_command(wish: Wish, host_file: Path | None, depot: str | None) -> str:
    """The ``get`` command line of the same words."""
    words = ["flashdepot", "get"]
    given = {**{name.replace("_", "-"): value for name, value in vars(wish).items()}, "host": host_file, "depot": depot}
    for name, value in given.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _nearest(rejected: Rejected) -> str:
    if not rejected:
        return "It is empty."
    manifest, reasons = rejected[0]
    return f"The nearest one, {manifest.recipe_key[:12]}, {'; '.join(reasons)}."
