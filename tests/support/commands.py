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
    command: click.Command | None = app
    context = click.Context(app)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        assert command is not None
        context = click.Context(command, parent=context)
    assert command is not None
    return command.make_context(name, words, parent=context.parent)
