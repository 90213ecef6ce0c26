"""Lines for the shell of a system: a POSIX shell, or ``cmd`` on Windows."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from enum import Enum

_OPERATORS = re.compile(r"[&|<>^()]")


class Shell(Enum):
    """How words are quoted, variables set and remarks made."""

    POSIX = "posix"
    CMD = "cmd"

    @classmethod
    def of(cls, system: str) -> Shell:
        """The shell of a system, ``linux`` or ``windows``."""
        return cls.CMD if system == "windows" else cls.POSIX

    def join(self, arguments: Sequence[str]) -> str:
        """Arguments as one line that gives a program these arguments.

        cmd has no quote for percent signs: a name between two of them is replaced by a variable of that name, if set.
        """
        return shlex.join(arguments) if self is Shell.POSIX else " ".join(map(_quoted_for_cmd, arguments))

    def assignment(self, name: str, value: str) -> str:
        """The line that sets an environment variable."""
        return f"export {name}={shlex.quote(value)}" if self is Shell.POSIX else f'set "{name}={value}"'

    def prepending(self, name: str, folder: str) -> str:
        """The line that puts a folder in front of a variable's list of folders."""
        if self is Shell.POSIX:
            return f"export {name}={shlex.quote(folder)}${{{name}:+:${name}}}"
        return f'set "{name}={folder};%{name}%"'

    def remark(self, text: str) -> str:
        """A line that does nothing."""
        return f"{'#' if self is Shell.POSIX else 'rem'} {text}"


def _quoted_for_cmd(argument: str) -> str:
    """An argument as programs of Windows take it apart, and with the signs in quotes that only cmd acts on."""
    quoted = subprocess.list2cmdline([argument])
    return f'"{quoted}"' if quoted == argument and _OPERATORS.search(argument) else quoted
