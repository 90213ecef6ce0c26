r"""Which folders a build on Windows can use. Pure.

``cl``, nvcc's phases and ``link`` take paths of 259 characters and no more, whatever ``LongPathsEnabled`` says: that
setting of Windows serves programs that ask for it, as Python does and they do not. Blanks and letters beyond ASCII
get lost where one of nvcc's phases hands a path to the next.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flashdepot.errors import MissingToolError

LONGEST_PATH = 259
"""``MAX_PATH`` of Windows without the zero at its end."""

BELOW = {"depot": 187 + 22, "temp": 100, "package": 40}
r"""Characters that a build adds to each folder, with the ``\`` between.

The depot's longest are files of CUTLASS (187 in flash-attn 2.8.3.post2) while they are unpacked beside their place
(22 more), the temporary folder's are those of nvcc's phases, the package's the sources of the C layer.
"""

_MEND = {
    "depot": r"Use another depot: --depot C:\fd, or for every command: setx FLASHDEPOT_HOME C:\fd",
    "temp": r"Use another folder in this shell: md C:\t & set TEMP=C:\t& set TMP=C:\t",
    "package": r"Install flashdepot elsewhere: py -m venv C:\fd-env && C:\fd-env\Scripts\pip install flashdepot",
}


class PathProblem(msgspec.Struct, frozen=True):
    """A folder that cannot be used, and the class of failure that it would lead to."""

    class_id: str
    seen: str
    why: str
    mend: str


def path_problems(places: Mapping[str, str]) -> list[PathProblem]:
    """What is wrong with the folders of a build.

    :param places: paths by what they are for: ``depot``, ``temp``, ``package``.
    """
    return [problem for use, path in places.items() for problem in _problems(use, path)]


def require_usable_paths(places: Mapping[str, str]) -> None:
    """:raises MissingToolError: for the first folder that a build cannot use, with the command that names another."""
    for problem in path_problems(places):
        raise MissingToolError(f"{problem.seen} {problem.why}", hint=problem.mend)


def _problems(use: str, path: str) -> list[PathProblem]:
    found = []
    named, mend = f"The folder {path} ({use})", _MEND[use]
    if len(path) + BELOW[use] > LONGEST_PATH:
        seen = f"{named} has {len(path)} characters, and a build adds up to {BELOW[use]}."
        why = f"The compilers open no file whose path is longer than {LONGEST_PATH}: it seems not to be there."
        found.append(PathProblem("win-long-path", seen, why, mend))
    if any(character.isspace() for character in path):
        why = "nvcc's phases do not quote every path that they hand on."
        found.append(PathProblem("nvcc-path-spaces", f"{named} has a blank.", why, mend))
    if foreign := "".join(sorted({character for character in path if not character.isascii()})):
        why = "nvcc's phases read paths in the code page of the country, and lose what it does not have."
        found.append(PathProblem("nvcc-path-spaces", f"{named} has letters beyond ASCII: {foreign}.", why, mend))
    return found
