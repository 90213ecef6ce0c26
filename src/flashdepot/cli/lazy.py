"""Groups of commands that import the module of a command only when that command runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

Table = Mapping[str, tuple[str, str]]
"""Every command of a group: the module of this package that has it under the same name, and its line in the help."""


class LazyCommands(click.Group):
    """Starts each command with the imports that it needs alone, and lists all of them without importing any.

    A command ``pkg-config`` is ``pkg_config`` in its module.
    """

    def __init__(self, *arguments: Any, table: Table, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, or ``None``."""
        if cmd_name not in self._table:
            return None
        module = import_module(f"flashdepot.cli.{self._table[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])
