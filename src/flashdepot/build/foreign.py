"""Compiling source that nobody vouches for: a folder or a commit, which may try to read what is not its own.

A source can make a compiler read any file into an object (``#include``, ``#embed``, ``.incbin``), and one that is
Python runs. So its compilers see the tools, the sources and a folder of their own, and nothing else of this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from flashdepot.system.confinement import UNCONFINED, Means

_KEPT = frozenset({"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "SYSTEMROOT"})
"""Variables that compilers need. All others stay outside: a token may be among them."""

_OF_A_TOOL = ("bin", "lib", "lib32", "lib64", "libexec", "include", "share/gcc*", "*-linux-*", "pyvenv.cfg")
"""What belongs to a compiler, in the folder that it was installed into."""


def confined_environment(environment: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """Of an environment what compilers need.

    :param variables: those that change what the compilers write.
    """
    kept = _KEPT.union(variables)
    return {name: value for name, value in environment.items() if name in kept}


def tool_folders(programs: Iterable[str]) -> tuple[Path, ...]:
    """What compilers consist of outside the system's folders, such as a conda environment's or a toolset's.

    Python is among them: it compiles FlashAttention-4.
    """
    found: list[Path] = []
    for program in map(Path, (*programs, sys.executable, f"{sys.base_prefix}/bin/python")):
        for path in (program, program.resolve()) if program.is_absolute() else ():
            prefix = path.parent.parent
            found += [path.parent, *(inner for name in _OF_A_TOOL for inner in prefix.glob(name))]
    return tuple(dict.fromkeys(found))


def named_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders that the user's own variables name, such as CPATH; PATH, which programs are found on, is none."""
    texts = (value for name, value in environment.items() if name != "PATH")
    return tuple(Path(part) for text in texts for part in text.split(os.pathsep) if os.path.isabs(part))  # noqa: PTH117


def told(by: Means) -> str:
    """The sentence for the user on how the compilers of a foreign source are confined."""
    return f"This source is not a published one: its compilers are confined {by}. {UNCONFINED}=1 lifts that."
