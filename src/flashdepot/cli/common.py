"""How commands and their options are made, and the options that many commands take."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flashdepot.cli.output import JSON, QUIET, VERBOSE, heard, is_verbose, say, warn
from flashdepot.depot import Depot
from flashdepot.depot import open_depot as depot_in
from flashdepot.remotes import Remotes, users_remotes

if TYPE_CHECKING:
    from flashdepot.model.remote import RemoteSettings


Command = TypeVar("Command", bound=Callable[..., Any])


def _remember(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[name] = value or heard(name)  # before the command or after it

    return remember


def _show_more(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not is_verbose():
        context.meta[VERBOSE] = True
        from flashdepot.process.run import listen  # noqa: PLC0415

        listen(say)


def _go_offline(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        from flashdepot.net.fetch import OFFLINE  # noqa: PLC0415

        os.environ[OFFLINE] = "1"  # for what is started from here as well


def _common(*names: str, callback: Callable[..., None], help: str) -> click.Option:  # noqa: A002  (click's word)
    return click.Option(names, is_flag=True, expose_value=False, callback=callback, help=help)


COMMON_OPTIONS = (
    _common("--json", callback=_remember(JSON), help="Print one JSON document on standard output."),
    _common("-q", "--quiet", callback=_remember(QUIET), help="Print only results, warnings and errors."),
    _common(
        "-v",
        "--verbose",
        callback=_show_more,
        help="Print more: every program that is started and every file that is fetched.",
    ),
    _common("--offline", callback=_go_offline, help="Never use the network, as FLASHDEPOT_OFFLINE=1 does."),
)
"""What every command takes."""


def _opened(context: click.Context, option: click.Parameter, folder: Path | None) -> Depot:
    if context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE:
        context.meta[_DEPOT] = folder
    return open_depot(folder)


class _Lines(click.HelpFormatter):
    """Help as wide as the terminal. click's has 50 columns at least, and a narrower terminal breaks its lines within words."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        from shutil import get_terminal_size  # noqa: PLC0415  (a command that is not asked for its help goes without)

        super().__init__(indent_increment, width, max_width)
        self.width = min(self.width, max(get_terminal_size().columns - 2, 20))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Names and what they are for: side by side, or one below the other where that leaves too little room."""
        super().write_dl(rows, col_max if self.width >= _SIDE_BY_SIDE else 2, col_spacing)


_SIDE_BY_SIDE = 50


class HelpContext(click.Context):
    """A call of a command, with its help in :class:`_Lines`."""

    formatter_class = _Lines


class Verb(click.Command):
    """A command whose help shows its options in the sections of :func:`options`."""

    context_class = HelpContext

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, those of every command last."""
        common = [*COMMON_OPTIONS, self.get_help_option(ctx)]
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = _COMMON if parameter in common else getattr(parameter, _SECTION, "Options")
            if (line := parameter.get_help_record(ctx)) is not None and line[1]:
                sections.setdefault(title, []).append(line)
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines)


_COMMON = "Common options"
_SECTION = "section"
"""The attribute of a parameter that has the title it stands under."""


def command(*lines: str, of: click.Group | None = None, **more: Any) -> Callable[[Callable[..., Any]], Any]:
    """A command, of a group or by itself; the lines are the examples of its help."""
    epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
    make: Callable[..., Any] = click.command if of is None else of.command
    return make(epilog=epilog, **{"cls": Verb, **more})  # type: ignore[no-any-return]


def option(line: str, to: str = "", **more: Any) -> Callable[[Command], Command]:
    """An option, by its line in the help: names and what stands for its value, two blanks, what it is for.

    :param to: the command's argument; without it, it has the option's name.
    """
    head, _, said = line.partition("  ")
    words = head.split()
    names = [word for word in words if word.startswith("-")]
    more.setdefault("metavar", " ".join(words[len(names) :]) or None)
    return click.option(*names, *([to] if to else []), help=said, **more)


class Number(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic from 8.4 on
    """A number from ``least`` to 99999: a whole one, if that is one."""

    name = "number"
    _END = 100_000

    def __init__(self, least: float) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number that a word says."""
        try:
            number = type(self.least)(value)
        except ValueError:
            number = None
        if number is None or not self.least <= number < self._END:  # nan is neither
            self.fail(f"'{value}' is not a number from {self.least} to {self._END - 1}.", param, ctx)
        return number


def flag(line: str, to: str = "", **more: Any) -> Callable[[Command], Command]:
    """An :func:`option` without a value."""
    return option(line, to, is_flag=True, **more)


def path_option(line: str, to: str = "", **more: Any) -> Callable[[Command], Command]:
    """An :func:`option` that names a file or folder, as a :class:`Path`."""
    return option(line, to, type=click.Path(path_type=Path), **more)


host_option = path_option(
    "--host FILE  Use the machine in this record, written by 'flashdepot host --save FILE'.  [default: this machine]",
    to="host_file",
)
python_option = option(
    "--python PY  Interpreter or folder of the environment.  [default: the active one, or the nearest .venv]"
)


def options(*decorators: Callable[[Command], Command], section: str | None = None) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which the help shows them.

    :param section: the title that they stand under there.
    """

    def decorate(command: Command) -> Command:
        before = len(_parameters(command))
        for decorator in reversed(decorators):
            command = decorator(command)
        if section is not None:
            for parameter in _parameters(command)[before:]:
                setattr(parameter, _SECTION, section)
        return command

    return decorate


def into(
    name: str, make: Callable[..., Any], *decorators: Callable[[Command], Command], section: str | None = None
) -> Callable[[Command], Command]:
    """Several :func:`options` whose values a command takes as one argument, which ``make`` makes of them, by their names.

    A struct is made of its fields, which other such arguments may be.
    """

    def decorate(command: Command) -> Command:
        before = len(_parameters(command))

        @functools.wraps(command)
        def wrapped(*arguments: Any, **given: Any) -> Any:
            made = make(**{taken: given.pop(taken) for taken in taking})
            return command(*arguments, **given, **{name: made})

        decorated = options(*decorators, section=section)(wrapped)  # type: ignore[arg-type]
        taking = getattr(make, "__struct_fields__", None) or [p.name for p in _parameters(decorated)[before:]]
        return decorated

    return decorate


def _parameters(command: Callable[..., Any]) -> list[click.Parameter]:
    found: list[click.Parameter] = getattr(command, "__click_params__", [])
    return found


_DEPOT = "flashdepot.depot"
depot_option = options(
    option(
        "--depot DIR  Folder of the depot.  [default: the user's cache folder]",
        type=click.Path(path_type=Path),
        envvar="FLASHDEPOT_HOME",
        show_envvar=True,
        callback=_opened,
    ),
    section=_COMMON,
)
"""The argument ``depot``, a :class:`Depot`: opening one touches nothing."""


def named_depot() -> Path | None:
    """The folder of ``--depot``, for commands that are printed: what the environment says, they will hear as well."""
    folder: Path | None = click.get_current_context().meta.get(_DEPOT)
    return folder


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
