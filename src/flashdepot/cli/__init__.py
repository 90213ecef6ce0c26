"""The command line: one file a command group. It parses, calls and prints; it decides nothing."""

from flashdepot.cli.app import run

__all__ = ["run"]
