"""What a command answers and says: the answer on standard output, all else on standard error, both as its user wants it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec

from flashdepot.errors import FlashdepotError, MissingToolError, UsageError

QUIET, VERBOSE, JSON = "flashdepot.quiet", "flashdepot.verbose", "flashdepot.json"
"""What every command of a process hears, by names in its context."""


def heard(name: str) -> bool:
    """Whether an option of all commands was given, before the command or after it."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(name))


is_quiet = functools.partial(heard, QUIET)
"""Whether the person at the terminal asked for results, warnings and errors only."""
is_verbose = functools.partial(heard, VERBOSE)
wants_json = functools.partial(heard, JSON)
"""Whether a program reads the answer: nobody is asked anything then."""


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
    if not is_quiet():
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
