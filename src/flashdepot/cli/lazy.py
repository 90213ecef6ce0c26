"""Groups of commands that import the module of a command only when that command runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from flashdepot.cli.common import COMMON_OPTIONS
from flashdepot.errors import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Table = Mapping[str, tuple[str, str]]
"""Every command of a group: the module of this package that has it under the same name, and its line in the help."""


class Commands(click.Group):
    """A group that gives every command :data:`COMMON_OPTIONS`, and suggests the name that a wrong one is near to."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or ``None``."""
        found = super().get_command(ctx, cmd_name)
        return _with_common_options(found) if found is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; :raises UsageError: when there is none of that name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = self._in_groups(ctx, args[0]) or did_you_mean(args[0], known)
            suggestion = near or f" There are {', '.join(known)}."
            raise click.UsageError(f"No such command '{args[0]}'.{suggestion}", ctx)
        return super().resolve_command(ctx, args)

    def _in_groups(self, ctx: click.Context, word: str) -> str:
        """A sentence, after a space, with the groups of this one that have a command of that name; empty where none has."""
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        groups = [command for command in commands if isinstance(command, click.Group)]
        found = [f"'{ctx.command_path} {group.name} {word}'" for group in groups if word in group.list_commands(ctx)]
        return f" Did you mean {' or '.join(found)}?" if found else ""


def _with_common_options(command: click.Command) -> click.Command:
    if not isinstance(command, click.Group):
        taken = {word for parameter in command.params for word in parameter.opts}
        command.params += [option for option in COMMON_OPTIONS if taken.isdisjoint(option.opts)]
    return command


class LazyCommands(Commands):
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
        return _with_common_options(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The names that begin so; no command is imported."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        return [
            CompletionItem(name, help=line) for name, (_, line) in self._table.items() if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])
