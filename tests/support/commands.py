"""Commands as the program takes them apart."""

import os
import shlex

import click

from flashdepot.cli.app import app


def words_in(line: str) -> list[str]:
    """The words of a command that is shown for a shell of this system."""
    return shlex.split(line) if os.name == "posix" else [word.strip('"') for word in shlex.split(line, posix=False)]


def parsed(words: list[str]) -> click.Context:
    """What is behind ``flashdepot`` on a command line; what the program refuses is an error here."""
    context = click.Context(app)
    name, command, rest = app.resolve_command(context, words)
    assert command is not None
    while isinstance(command, click.Group):
        context = command.make_context(name, rest, parent=context)
        name, command, rest = command.resolve_command(context, [*context.protected_args, *context.args])
        assert command is not None
    return command.make_context(name, rest, parent=context)
