"""Commands that are longer than Windows can start, with their arguments in a file."""

from __future__ import annotations

import codecs
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WINDOWS_LIMIT = 32_767
"""Characters of a command line: ``CreateProcessW``, parameter ``lpCommandLine``, with the zero at its end."""

OPTIONS_FILE = "options.txt"


def startable(command: Sequence[str], folder: Path, *, system: str = sys.platform) -> list[str]:
    """An nvcc command that the system can start: as it is, or with ``--options-file`` and a file in ``folder``."""
    if system != "win32" or len(subprocess.list2cmdline(command)) < WINDOWS_LIMIT:
        return list(command)
    path = folder / OPTIONS_FILE
    path.write_text(options_text(command[1:]), encoding="utf-8")
    return [command[0], "--options-file", str(path)]


def options_text(arguments: Sequence[str]) -> str:
    """Arguments as nvcc reads them from a file: blanks part them, quotes hold them together.

    A backslash before a quote would escape it, so folders are parted by ``/``, which Windows takes as well.
    """
    return "".join(f"{_quoted(argument.replace(chr(92), '/'))}\n" for argument in arguments)


def response_text(arguments: Sequence[str]) -> bytes:
    """Arguments as ``link`` and ``lib`` read them from a file, one a line, in UTF-16 so that every name can be said."""
    return codecs.BOM_UTF16_LE + "".join(f"{_quoted(argument)}\r\n" for argument in arguments).encode("utf-16-le")


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument
