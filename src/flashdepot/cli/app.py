"""The application: its commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from flashdepot import __version__
from flashdepot.cli.common import COMMON_OPTIONS, answer, complain, print_json, show
from flashdepot.errors import ConsentError, FlashdepotError, MissingToolError, UsageError, did_you_mean
from flashdepot.files.atomic import explain_disk_error
from flashdepot.model.limits import joined

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


CommandTable = Mapping[str, tuple[str, str]]
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, with the whole of each one's first sentence."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=1000)) for name, found in commands if found])

    def _in_groups(self, ctx: click.Context, word: str) -> str:
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
    """Starts each command with only the imports that it needs, and lists all of them without importing any.

    A command ``pkg-config`` is ``pkg_config`` in its module.
    """

    def __init__(self, *arguments: Any, table: CommandTable, **keywords: Any) -> None:
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


INTERRUPTED = 130

COMMANDS: CommandTable = {
    "get": ("library_commands", "Get a library from the depot or a remote, or build it from source once."),
    "build": ("library_commands", "Build a library with this machine's toolchain."),
    "wheel": ("library_commands", "Make a Python wheel that works with every torch and every Python."),
    "index": ("publish_commands", "Write a package index of your wheels, which pip and uv install from."),
    "publish": ("publish_commands", "Make, prove and push every library and wheel that a matrix file asks for."),
    "install": ("install_commands", "Install flash-attn into a Python environment, and check that it works there."),
    "resolve": ("resolve_commands", "Choose the best wheel of all that exist or could be built, and say why."),
    "lock": ("resolve_commands", "Pin what 'resolve' chooses in flashdepot.lock, by address and SHA-256."),
    "verify": ("prove_commands", "Check the results of the installed flash_attn on this machine's GPU."),
    "bench": ("prove_commands", "Compare the speed of the installed flash_attn with torch's own attention."),
    "link": ("link_commands", "Print what a build needs to link a library: CMake, pkg-config, cargo, or plain flags."),
    "vendor": ("vendor_commands", "Put a library into a project's repository, or check the ones in it."),
    "check": ("check_commands", "Check whether wheels and libraries fit, before you import them."),
    "host": ("host_commands", "Show what was found on this machine."),
    "doctor": (
        "host_commands",
        "Find what prevents installing, building, linking or running, and how to fix it.",
    ),
    "explain": ("check_commands", "Find the cause of a failure in a log, and how to fix it."),
    "catalog": ("catalog_commands", "List the wheels that others publish."),
    "trust": (
        "trust_commands",
        "Allow a project's flashdepot.toml to run a compiler, or to take source or libraries from elsewhere.",
    ),
    "remote": ("trust_commands", "Name the places from which libraries and units are fetched."),
    "keys": ("trust_commands", "Make the key that signs what you push, and choose whose signatures are trusted."),
    "depot": ("depot_commands", "Inspect, check and clean the store of compiled units and libraries."),
}


@click.group(
    cls=LazyCommands,
    table=COMMANDS,
    result_callback=show,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="First steps: 'flashdepot get --profile quick' builds a small library in about a minute; "
    "'flashdepot host' shows what this machine has. Every command has --help with examples.",
)
@click.version_option(__version__, "-V", "--version", message="flashdepot %(version)s")
def app() -> None:
    """FlashAttention fetched in seconds instead of compiled for twenty minutes."""


def run(*, catches_interrupts: bool = False) -> int:
    """Run the command line of this process and return its exit code.

    :param catches_interrupts: turn Ctrl-C into an answer and exit code 130, and leave it to the system afterwards.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if os.name == "nt":
        _fit_windows()
    os.umask(os.umask(0o077) | 0o022)  # what is made here is executed: nobody else may ever write into it
    try:
        if catches_interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _require_folder()
        status = app.main(prog_name="flashdepot", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as asked:
        answer(asked.format_message())
        return asked.exit_code
    except (KeyboardInterrupt, click.Abort):
        _report(FlashdepotError("Stopped. What was finished is kept; run the same command to resume."), INTERRUPTED)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (a page of our own source helps no user)
        if not {"-v", "--verbose"}.isdisjoint(sys.argv):
            import traceback  # noqa: PLC0415  (no command that works needs it)

            traceback.print_exc()
        plain = _in_plain_words(error)
        return _report(plain, plain.exit_code)
    finally:
        if catches_interrupts:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status if isinstance(status, int) else 0  # a command that ends by click's exit() has a status


def _fit_windows() -> None:
    """Have a console read escape sequences, and letters that the code page of a pipe or file lacks written as numbers."""
    if sys.stderr.isatty():
        from colorama import just_fix_windows_console  # type: ignore[import, unused-ignore]  # noqa: PLC0415  (of click's)

        just_fix_windows_console()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _require_folder() -> None:
    try:
        os.getcwd()  # noqa: PTH109  (Path.cwd() costs an import)
    except OSError as error:
        raise UsageError(
            f"The current folder cannot be used: {error.strerror}.", hint="Change to one that exists: cd"
        ) from error


def _in_plain_words(error: Exception) -> FlashdepotError:
    if isinstance(error, ConsentError):
        words = [word for word in sys.argv[1:] if not word.startswith("--build=")]
        if "--build" in words:
            at = words.index("--build")
            del words[at : at + 2]
        return ConsentError(
            error.message, hint=f"To compile it: {joined(['flashdepot', *words, '-y'])}", smaller=error.smaller
        )
    if isinstance(error, FlashdepotError):
        return error
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context is not None else "flashdepot"
        return UsageError(error.format_message(), hint=f"What it takes: {command} --help")
    if isinstance(error, OSError) and (explained := explain_disk_error(error, None)) is not None:
        return explained
    if isinstance(error, (NotADirectoryError, IsADirectoryError, FileExistsError)) and error.filename:
        named = error.filename2 or error.filename
        return UsageError(f"{named} cannot be used: {error.strerror}.", hint="Name another path.")
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename} cannot be used" if error.filename else "The system refuses"
        return MissingToolError(f"{where}: {error.strerror}.", hint="With -v the same command says where it happened.")
    import traceback  # noqa: PLC0415  (no command that works needs it)

    place = traceback.extract_tb(error.__traceback__)[-1]
    return FlashdepotError(
        f"Internal error: {type(error).__name__}: {error} ({place.filename}:{place.lineno})",
        hint="Please report it with what the same command prints with -v, and 'flashdepot host --json'.",
    )


def _report(error: FlashdepotError, exit_code: int) -> int:
    if "--json" in sys.argv:
        print_json({"status": "error", "exit_code": exit_code, "message": error.message, "hint": error.hint})
    complain(error)
    return exit_code
