"""The application: its commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import click

from flashdepot import __version__
from flashdepot.cli.common import print_json, say
from flashdepot.cli.lazy import LazyCommands, Table
from flashdepot.errors import FlashdepotError
from flashdepot.system.files import explain_disk_error

INTERRUPTED = 130

COMMANDS: Table = {
    "get": ("library_commands", "Get a library from the depot, or build it from source once."),
    "build": ("library_commands", "Build a library with this machine's toolchain."),
    "wheel": ("wheel_commands", "Make a Python wheel that works with every torch and every Python."),
    "install": ("install_commands", "Install flash-attn into a Python environment, and check that it works there."),
    "resolve": ("resolve_commands", "Choose the best wheel of all that exist or could be built, and say why."),
    "lock": ("lock_commands", "Pin what 'resolve' chooses in flashdepot.lock, by address and SHA-256."),
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
    "explain": ("explain_commands", "Find the cause of a failure in a log, and how to fix it."),
    "catalog": ("catalog_commands", "List the wheels that others publish."),
    "trust": (
        "trust_commands",
        "Allow a project's flashdepot.toml to run a compiler or to take source from elsewhere.",
    ),
    "depot": ("depot_commands", "Inspect, check and clean the store of compiled units and libraries."),
}


@click.group(
    cls=LazyCommands,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="First steps: 'flashdepot get --profile quick' builds a small library in about a minute; "
    "'flashdepot host' shows what this machine has. Every command has --help with examples.",
)
@click.version_option(__version__, "-V", "--version", message="flashdepot %(version)s")
def app() -> None:
    """FlashAttention fetched in seconds instead of compiled for twenty minutes."""


def run() -> int:
    """Run the command line of this process and return its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    os.umask(os.umask(0o077) | 0o022)  # what is made here is executed: nobody else may ever write into it
    try:
        status = app.main(prog_name="flashdepot", standalone_mode=False)
    except FlashdepotError as error:
        return _report(error)
    except OSError as error:
        if (explained := explain_disk_error(error, None)) is None:
            raise
        return _report(explained)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("Stopped. What was finished is kept; run the same command to resume.")
        return INTERRUPTED
    return status if isinstance(status, int) else 0  # a command that ends by click's exit() has a status


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _report(error: FlashdepotError) -> int:
    if "--json" in sys.argv:
        document = {"status": "error", "exit_code": error.exit_code, "message": error.message, "hint": error.hint}
        print_json(document)
    say(f"error: {error.message}")
    if error.hint:
        say(f"  {error.hint}")
    return error.exit_code
