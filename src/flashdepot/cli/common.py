"""Options that many commands take, and how an answer is printed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from flashdepot.depot import Depot
from flashdepot.depot import open_depot as depot_in
from flashdepot.errors import FlashdepotError, MissingToolError, UsageError
from flashdepot.remotes import Remotes, users_remotes

if TYPE_CHECKING:
    from flashdepot.model.remote import RemoteSettings


Command = TypeVar("Command", bound=Callable[..., Any])

_QUIET, _VERBOSE, _JSON = "flashdepot.quiet", "flashdepot.verbose", "flashdepot.json"
"""What every command of a process hears, by names in its context."""


def _heard(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(name))


is_quiet = functools.partial(_heard, _QUIET)
"""Whether the person at the terminal asked for results, warnings and errors only."""
is_verbose = functools.partial(_heard, _VERBOSE)
wants_json = functools.partial(_heard, _JSON)
"""Whether a program reads the answer: nobody is asked anything then."""


def _remember(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[name] = value or _heard(name)  # before the command or after it

    return remember


def _show_more(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not is_verbose():
        context.meta[_VERBOSE] = True
        from flashdepot.process.run import listen  # noqa: PLC0415

        listen(say)


def _go_offline(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        from flashdepot.net.fetch import OFFLINE  # noqa: PLC0415

        os.environ[OFFLINE] = "1"  # for what is started from here as well


def _common(*names: str, callback: Callable[..., None], help: str) -> click.Option:  # noqa: A002  (click's word)
    return click.Option(names, is_flag=True, expose_value=False, callback=callback, help=help)


COMMON_OPTIONS = (
    _common("--json", callback=_remember(_JSON), help="Print one JSON document on standard output."),
    _common("-q", "--quiet", callback=_remember(_QUIET), help="Print only results, warnings and errors."),
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


class Verb(click.Command):
    """A command whose help shows its options in the sections of :func:`options`."""

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


_STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""What steers a terminal or turns its text around instead of being shown, and what is not a character at all."""


def printable(text: str) -> str:
    r"""A text that only shows itself on a terminal: ``\x1b`` stands for an escape, and lines end as they did.

    Everything that flashdepot prints goes through here, because it may come from a log, a file's name or a server.
    """
    if text.isascii() and all(line.isprintable() for line in text.split("\n")):
        return text
    return re.sub(_STEERING, lambda match: ascii(match[0])[1:-1], text)


def answer(text: str) -> None:
    """The answer of a command, on standard output."""
    with _where_answers_go():
        sys.stdout.write((printable(text) if sys.stdout.isatty() else _for_a_program(text)) + "\n")


def _for_a_program(text: str) -> str:
    """What :func:`printable` makes of a text, with the bytes of a path that are not characters left to :func:`as_bytes`."""
    return "".join(part if part[:1] in _BYTES else printable(part) for part in re.split("([\udc80-\udcff]+)", text))


_BYTES = frozenset(map(chr, range(0xDC80, 0xDD00)))
"""How Python spells a byte of a path that is not a character in the encoding of the system."""


def as_bytes(error: UnicodeError) -> tuple[bytes, int]:
    """Bytes of a path as they are, and any other character that an encoding lacks as its number: a handler of :mod:`codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    written = (bytes([ord(c) - 0xDC00]) if c in _BYTES else c.encode("ascii", "backslashreplace") for c in lacking)
    return b"".join(written), error.end


def finish_answer() -> None:
    """Hand on what :func:`answer` wrote; :raises MissingToolError: when that cannot be, as on a full disk."""
    with _where_answers_go():
        sys.stdout.flush()


@contextlib.contextmanager
def _where_answers_go() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MissingToolError(
            f"Standard output cannot be written: {error.strerror}.",
            hint="Free space on its disk, or redirect it to another one.",
        ) from error


def print_json(document: Any) -> None:
    """The one document of ``--json``; what JSON has no type for, such as a path or a version, is a text."""
    answer(json.dumps(document, indent=2, default=str))


def fields(thing: object, *names: str) -> dict[str, Any]:
    """Some fields of a result, for a document."""
    return {name: getattr(thing, name) for name in names}


def say(text: str) -> None:
    """A line for the person at the terminal, unless that person asked for quiet."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(_QUIET):
        _tell(printable(text) + "\n")


def warn(text: str) -> None:
    """A problem that did not stop the work."""
    _tell(f"{coloured('warning:', 'yellow')} {printable(text)}\n")


def _tell(text: str) -> None:
    """Write to standard error, as long as that can be written: a log's full disk and a closed terminal stop no work."""
    try:
        sys.stderr.write(text)
    except BrokenPipeError:  # its reader wants no more, as after "| head"
        raise
    except OSError:
        return


def complain(error: FlashdepotError) -> None:
    """Why the work stopped, and what helps."""
    with contextlib.suppress(BrokenPipeError):  # the exit code says it as well
        _tell(f"{coloured('error:', 'red')} {printable(error.message)}\n")
        if error.hint:
            _tell("".join(f"  {line}\n" for line in printable(error.hint).split("\n")))


def coloured(text: str, colour: str) -> str:
    """A text in bold and a colour, where standard error is a terminal and the user wants colours.

    ``NO_COLOR`` is that of https://no-color.org.
    """
    shows = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, fg=colour, bold=True) if shows else text


def ask(question: str) -> bool:
    """Whether the person at the terminal, or a program that writes to this one, says yes.

    :raises UsageError: when nobody is there to answer.
    """
    try:
        return click.confirm(printable(question), err=True)  # noqa: TID251  (here it is made printable)
    except click.Abort:
        say("")  # what is said of it has a line of its own
        if sys.stdin.isatty():
            raise
        raise UsageError("Nothing was done: nobody answered.", hint="Answer in advance: --yes") from None


class Table(msgspec.Struct, frozen=True):
    """Aligned columns; a terminal's width is kept to, a pipe gets whole lines."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self) -> None:
        """Print it on standard output."""
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table as Drawn  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 10_000
        drawn = Drawn(box=None, pad_edge=False)
        for column in self.columns:
            drawn.add_column(column, overflow="fold")
        for row in self.rows:
            drawn.add_row(*(Text(printable(cell)) for cell in row))
        with _where_answers_go():
            console.print(drawn, soft_wrap=not console.is_terminal)


class View(msgspec.Struct, frozen=True):
    """What a command answers: it returns this, and :func:`show` prints it.

    :param document: for ``--json``, or what makes it.
    :param answer: for a person, on standard output.
    :param said: sentences for the person at the terminal, before the answer; ``then`` after it.
    :param status: the exit code.
    :param error: what is wrong with it: complained of, with the error's exit code.
    """

    document: Any
    answer: Iterable[str | Table] = ()
    said: Iterable[str] = ()
    then: Iterable[str] = ()
    status: int = 0
    error: FlashdepotError | None = None


def show(view: View | None, **_: Any) -> None:
    """Print what a command answers, as its user wants it, and end the command with its exit code."""
    if view is None:
        return
    if wants_json():
        print_json(view.document() if callable(view.document) else view.document)
    else:
        for sentence in view.said:
            say(sentence)
        for part in view.answer:
            part.show() if isinstance(part, Table) else answer(part)
        for sentence in view.then:
            say(sentence)
    if view.error is not None:
        complain(view.error)
    click.get_current_context().exit(view.error.exit_code if view.error is not None else view.status)
