"""Options that many commands take, and what is printed where."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from flashdepot.depot import Depot
from flashdepot.depot import open_depot as depot_in
from flashdepot.errors import FlashdepotError
from flashdepot.host import saved_host
from flashdepot.model.host import HostRecord
from flashdepot.remotes import Remotes, users_remotes

if TYPE_CHECKING:
    from flashdepot.model.remote import RemoteSettings


Command = TypeVar("Command", bound=Callable[..., None])

depot_option = click.option(
    "--depot",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="FLASHDEPOT_HOME",
    show_envvar=True,
    help="Folder of the depot.  [default: the user's cache folder]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")


def named_depot() -> Path | None:
    """The folder of ``--depot``, for commands that are printed: what the environment says, they will hear as well."""
    context = click.get_current_context()
    source = context.get_parameter_source("depot")
    return context.params["depot"] if source is click.core.ParameterSource.COMMANDLINE else None


_QUIET = "flashdepot.quiet"


def _hush(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.meta[_QUIET] = value
    return value


def _show_more(_: click.Context, __: click.Parameter, value: bool) -> bool:
    if value:
        from flashdepot.process.trace import listen  # noqa: PLC0415

        listen(say)
    return value


def _go_offline(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        from flashdepot.net.fetch import OFFLINE  # noqa: PLC0415

        os.environ[OFFLINE] = "1"  # for what is started from here as well


_QUIET_WORDS: Any = {"is_flag": True, "callback": _hush, "help": "Print only results, warnings and errors."}
_VERBOSE_WORDS: Any = {
    "is_flag": True,
    "callback": _show_more,
    "help": "Print more: every program that is started and every file that is fetched.",
}
quiet_option = click.option("-q", "--quiet", **_QUIET_WORDS)
verbose_option = click.option("-v", "--verbose", **_VERBOSE_WORDS)
COMMON_OPTIONS = (
    click.Option(["-q", "--quiet"], expose_value=False, **_QUIET_WORDS),
    click.Option(["-v", "--verbose"], expose_value=False, **_VERBOSE_WORDS),
    click.Option(
        ["--offline"],
        is_flag=True,
        expose_value=False,
        callback=_go_offline,
        help="Never use the network, as FLASHDEPOT_OFFLINE=1 does.",
    ),
)
"""What every command takes, whether or not it does anything else with the value."""
host_option = click.option(
    "--host",
    "host_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use the machine in this record, written by 'flashdepot host --save FILE'.  [default: this machine]",
)
python_option = click.option(
    "--python",
    metavar="PY",
    help="Interpreter or folder of the environment.  [default: the active one, or the nearest .venv]",
)


def examples(*lines: str) -> str:
    """An epilog for click that keeps its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which the help shows them."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def into(
    name: str, make: Callable[..., Any], *decorators: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """Several options whose values a command takes as one argument, which ``make`` makes of them, by their names."""
    taken = [parameter for parameter in make.__annotations__ if parameter != "return"]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(*arguments: Any, **given: Any) -> None:
            made = make(**{parameter: given.pop(parameter) for parameter in taken})
            command(*arguments, **given, **{name: made})

        return options(*decorators)(wrapped)  # type: ignore[arg-type]

    return decorate


def open_depot(folder: Path | None) -> Depot:
    """The depot that was named, or the user's; what is damaged in it is a warning.

    What it lacks is asked of the remotes of the project in this folder, and then of the user's.
    """
    return depot_in(folder, warn, configured_remotes())


def configured_remotes() -> Remotes:
    """The remotes of the project in this folder and the user's; of two with one name, the user's.

    They are read when the first of them is needed, which raises :class:`UsageError` for settings that cannot be used.
    """

    def settings() -> list[RemoteSettings]:
        from flashdepot.resolve.project import trusted_remotes  # noqa: PLC0415  (a hit needs none of it)

        users = users_remotes()
        names = {remote.name for remote in users}
        return [*(remote for remote in trusted_remotes(Path.cwd()) if remote.name not in names), *users]

    return Remotes(settings, warn)


def load_host(path: Path | None) -> HostRecord | None:
    """Read the host record of ``--host``; ``None`` where none was named."""
    return saved_host(path) if path is not None else None


_STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""What steers a terminal or turns its text around instead of being shown, and what is no character at all."""


def printable(text: str) -> str:
    r"""A text that only shows itself on a terminal: ``\x1b`` stands for an escape, and lines end as they did.

    Everything that flashdepot prints goes through here, because it may come from a log, a file's name or a server.
    """
    if text.isascii() and all(line.isprintable() for line in text.split("\n")):
        return text
    return re.sub(_STEERING, lambda match: ascii(match[0])[1:-1], text)


def answer(text: str) -> None:
    """The answer of a command, on standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_json(document: Any) -> None:
    """The one document of ``--json``."""
    answer(json.dumps(document, indent=2))


def say(text: str) -> None:
    """A line for the person at the terminal, unless that person asked for quiet."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(_QUIET):
        sys.stderr.write(printable(text) + "\n")


def warn(text: str) -> None:
    """A problem that did not stop the work."""
    sys.stderr.write(f"{coloured('warning:', 'yellow')} {printable(text)}\n")


def complain(error: FlashdepotError) -> None:
    """Why the work stopped, and what helps."""
    sys.stderr.write(f"{coloured('error:', 'red')} {printable(error.message)}\n")
    if error.hint:
        sys.stderr.write("".join(f"  {line}\n" for line in printable(error.hint).split("\n")))


def coloured(text: str, colour: str, stream: IO[str] | None = None) -> str:
    """A text in bold and a colour, where the stream (standard error) is a terminal and the user wants colours.

    ``NO_COLOR`` is that of https://no-color.org.
    """
    shows = (stream or sys.stderr).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, fg=colour, bold=True) if shows else text


def ask(question: str) -> bool:
    """Whether the person at the terminal says yes."""
    return click.confirm(printable(question), err=True)  # noqa: TID251  (here it is made printable)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; a terminal's width is kept to, a pipe gets whole lines."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console.print(shown, soft_wrap=not console.is_terminal)
