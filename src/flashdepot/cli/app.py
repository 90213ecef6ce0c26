"""The application: its commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from flashdepot import __version__
from flashdepot.cli.common import COMMON_OPTIONS, HelpContext
from flashdepot.cli.output import answer, as_bytes, complain, finish_answer, print_json, show
from flashdepot.errors import ConsentError, FlashdepotError, MissingToolError, UsageError, did_you_mean, nearest
from flashdepot.files.disk import explain_disk_error
from flashdepot.model.limits import joined

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


CommandTable = Mapping[str, tuple[str, str]]
"""Commands of a group: the module of this package that has each under the same name, and its line in the help.

Where the line is empty, it is the command's own first sentence, for which its module is imported.
"""


def table_of(**modules: str) -> CommandTable:
    """The table of some modules, with the names of the commands of each and blanks between."""
    return {name: (module, "") for module, names in modules.items() for name in names.split()}


class Commands(click.Group):
    """A group that gives every command :data:`COMMON_OPTIONS`.

    The options may stand before the command too, and ``help COMMAND`` and ``--help COMMAND`` are ``COMMAND --help``. A
    command starts with only the imports that it needs: ``pkg-config`` is ``pkg_config`` in its module.

    :param sections: its commands, by the titles that they stand under in the help; none where they were added to it.
    """

    context_class = HelpContext

    def __init__(
        self, *arguments: Any, sections: Mapping[str, CommandTable] = MappingProxyType({}), **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.params += COMMON_OPTIONS
        self._sections = sections

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments of the command, which ``help`` turns into the question for its options.

        :raises UsageError: for an empty word, which a variable gives that is not set: it would mean this folder, or any key.
        """
        ours = args[: args.index("--")] if "--" in args else args  # "explain --" starts another program
        for before, word in zip(["", *ours], ours, strict=False):
            if not ctx.resilient_parsing and (not word or re.fullmatch("--[a-z0-9-]+=", word)):
                name = word.rstrip("=") or (before if before.startswith("-") else "")
                empty = f"The value of {name} is empty." if name else "One of the words is empty."
                raise UsageError(empty, hint="Is a variable not set? Name the value, or leave it out.")
        asks = args[:1] == ["help"] or (len(args) > 1 and args[0] in ctx.help_option_names)
        return super().parse_args(ctx, [*args[1:], "--help"] if asks else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return [*self._table] or super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or ``None``."""
        if cmd_name in self._table:
            module = import_module(f"flashdepot.cli.{self._table[cmd_name][0]}")
            found: click.Command | None = getattr(module, cmd_name.replace("-", "_"))
        else:
            found = super().get_command(ctx, cmd_name)
        if found is not None and not isinstance(found, click.Group):
            taken = {word for parameter in found.params for word in parameter.opts}
            found.params += [option for option in COMMON_OPTIONS if taken.isdisjoint(option.opts)]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; :raises UsageError: when none has that name."""
        if args and args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'.", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that begin so; no command is imported whose line the table has."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        known = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=self._line(ctx, name)) for name in known]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, and then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with a line each, under their titles."""
        for title, names in self._sections.items() or [("Commands", self.list_commands(ctx))]:
            with formatter.section(title):
                formatter.write_dl([(name, self._line(ctx, name)) for name in names])

    @property
    def _table(self) -> CommandTable:
        return {name: known for table in self._sections.values() for name, known in table.items()}

    def _line(self, ctx: click.Context, name: str) -> str:
        """What the help says of a command: the table's line, or the whole of its own first sentence."""
        _, line = self._table.get(name, ("", ""))
        command = None if line else self.get_command(ctx, name)
        return command.get_short_help_str(limit=1000) if command is not None else line


_INTERRUPTED = 130
_SIGPIPE = 13
_STOPPING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

COMMANDS: Mapping[str, CommandTable] = {
    "Python": {
        "install": ("install_commands", "Install flash-attn where torch is, and check that it works."),
        "resolve": ("resolve_commands", "Choose the best wheel of all there are, and say why."),
        "lock": ("resolve_commands", "Pin what 'resolve' chooses, by address and SHA-256."),
        "verify": ("prove_commands", "Check the results of the installed flash_attn on this GPU."),
        "bench": ("prove_commands", "Compare its speed with torch's own attention."),
        "catalog": ("catalog_commands", "List the wheels that others publish."),
    },
    "C, C++ and Rust": {
        "get": ("library_commands", "Get a library: stored, from a remote, or built once."),
        "build": ("library_commands", "Build a library with this machine's toolchain."),
        "link": ("link_commands", "Print what CMake, pkg-config, cargo or a compiler needs."),
        "vendor": ("vendor_commands", "Put a library into a repository, or check the ones in it."),
    },
    "For others": {
        "wheel": ("library_commands", "Make a wheel that works with every torch and every Python."),
        "index": ("publish_commands", "Write a package index of your wheels, for pip and uv."),
        "publish": ("publish_commands", "Make, verify and push all that a matrix file asks for."),
        "remote": ("trust_commands", "List, add or remove places to fetch libraries from."),
        "keys": ("trust_commands", "Make the key that signs, and choose whose you trust."),
    },
    "Something is wrong": {
        "explain": ("check_commands", "Find the cause of a failure in a log, and how to fix it."),
        "doctor": ("host_commands", "Find what prevents installing, building, linking or running."),
        "check": ("check_commands", "Check whether wheels and libraries fit, before an import."),
        "host": ("host_commands", "Show what was found on this machine."),
    },
    "This machine": {
        "depot": ("depot_commands", "Inspect, check and clean what is stored here."),
        "trust": ("trust_commands", "Allow a flashdepot.toml to name compilers and sources."),
    },
}


@click.group(
    cls=Commands,
    sections=COMMANDS,
    result_callback=show,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="First steps: 'flashdepot get --profile quick' builds a small library in about a minute, on Linux; "
    "'flashdepot host' shows what this machine has. Every command has --help.",
)
@click.version_option(__version__, "-V", "--version", message="flashdepot %(version)s")
def app() -> None:
    """FlashAttention fetched in seconds instead of compiled for twenty minutes."""


def run(*, catches_interrupts: bool = False) -> int:
    """Run the command line of this process and return its exit code, or the negative number of the signal that ended it.

    :param catches_interrupts: turn Ctrl-C into an answer, and leave it to the system afterwards.
    """
    for number in _STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores the end of a terminal
            signal.signal(number, _stop)
    os.umask(os.umask(0o077) | 0o022)  # what is made here is executed: nobody else may ever write into it
    try:
        _fit_output()
        if catches_interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _require_folder()
        try:
            status = app.main(prog_name="flashdepot", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as asked:
            answer(asked.format_message())
            status = asked.exit_code
        finish_answer()
    except (KeyboardInterrupt, click.Abort) as error:
        number = _signal_of(error)
        stopped = FlashdepotError("Stopped. What was finished is kept; run the same command to resume.")
        code = _report(stopped, 128 + number if number else _INTERRUPTED)
        return -number or code
    except SystemExit as ended:
        # click ends so when it completed a word, and click and rich when nobody reads what they write.
        return int(ended.code or 0) if "_FLASHDEPOT_COMPLETE" in os.environ else -_SIGPIPE
    except BrokenPipeError:
        return -_SIGPIPE
    except Exception as error:  # noqa: BLE001  (a page of our own source helps no user)
        ours = isinstance(error, (FlashdepotError, click.ClickException))
        if not ours and not {"-v", "--verbose"}.isdisjoint(sys.argv):
            import traceback  # noqa: PLC0415  (no command that works needs it)

            traceback.print_exc()
        plain = _in_plain_words(error)
        return _report(plain, plain.exit_code)
    finally:
        if catches_interrupts:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status if isinstance(status, int) else 0  # a command that ends by click's exit() has a status


def _fit_output() -> None:
    """Have letters that the encoding of the output lacks written as numbers, paths as they are, and Windows's console read escape sequences."""
    if os.name == "nt" and sys.stderr.isatty():
        from colorama import just_fix_windows_console  # type: ignore[import, unused-ignore]  # noqa: PLC0415  (of click's)

        just_fix_windows_console()
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("flashdepot", as_bytes)
        sys.stdout.reconfigure(errors="flashdepot")


def _stop(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _signal_of(error: BaseException | None) -> int:
    """The signal that led to an error; 0 for none, as where the input ended in place of an answer."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return 0 if error is None else error.args[0] if error.args else signal.SIGINT


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
    if isinstance(error, (UsageError, click.ClickException)):
        return _with_what_was_meant(error)
    if isinstance(error, FlashdepotError):
        return error
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


def _with_what_was_meant(error: UsageError | click.ClickException) -> UsageError:
    """The error, and the command that was probably meant."""
    from flashdepot.cli.mistakes import hint_for, missing_value, with_right_word  # noqa: PLC0415  (only a mistake pays)

    words = sys.argv[1:]
    if isinstance(error, UsageError):
        return UsageError(error.message, hint=with_right_word(words, *error.meant) or error.hint)
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        wrong = error.message.split("'")[1]
        known = list(map(str, error.param.type.choices))
        said = f"{error.format_message()}{did_you_mean(wrong, known)}"
        return UsageError(said, hint=with_right_word(words, wrong, nearest(wrong, known)) or hint_for(app, words))
    said = missing_value(app, words) or error.format_message()
    if isinstance(error, click.NoSuchOption):
        said = f"No such option '{error.option_name}'."
    return UsageError(said, hint=hint_for(app, words))


def _report(error: FlashdepotError, exit_code: int) -> int:
    if "--json" in sys.argv:
        with contextlib.suppress(OSError, MissingToolError):  # the answer's own file may be what is full
            print_json({"status": "error", "exit_code": exit_code, "message": error.message, "hint": error.hint})
    complain(error)
    return exit_code
