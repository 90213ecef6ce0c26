"""What compilers read: names for folders, depfiles, and the digests of files.

Names stand for folders, so that keys do not depend on where things are.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flashdepot.files.disk import sha256_file
from flashdepot.files.folders import Stamp
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.toolchain.choose import Toolchain


class PlaceNames(msgspec.Struct, frozen=True):
    """Folders by name: ``{upstream}``, ``{native}``, ``{generated}``, ``{cuda_include}``, ``{cuda}``.

    A path inside one of them is written with the name of the first that holds it; every other path, a system header,
    as it is. Two folders may share a name when they are the same to a compiler: a toolkit's ``include`` and its
    ``targets/x86_64-linux/include``.
    """

    places: tuple[tuple[str, Path], ...]

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each name; of several, the last."""
        return {name: str(folder) for name, folder in self.places}

    def name(self, path: str) -> str:
        """The name of an absolute path that a compiler printed, which may hold ``..``."""
        clean: str = os.path.normpath(path)
        for name, folder in self.places:
            prefix = f"{folder}{os.sep}"
            # On Windows compilers print paths in capitals as they please.
            if os.path.normcase(clean).startswith(os.path.normcase(prefix)):
                return f"{{{name}}}/{clean[len(prefix) :].replace(os.sep, '/')}"
        return clean.replace(os.sep, "/")

    def path(self, name: str) -> Path:
        """The path that :meth:`name` gave this name; of several, the first that is there."""
        paths = [folder / name[len(place) + 3 :] for place, folder in self.places if name.startswith(f"{{{place}}}/")]
        return next((path for path in paths if path.exists()), paths[0] if paths else Path(name))


def place_of(family: str) -> str:
    """The name of the folder of a family's source tree."""
    return "upstream" if family == DEFAULT_FAMILY else family


def places(sources: Mapping[str, Path], provided: Mapping[str, Path], toolchain: Toolchain) -> PlaceNames:
    """The folders of a machine that compilations name.

    :param sources: those of the trees by :func:`place_of`, of the C layer (``native``) and of the written header
        (``generated``).
    :param provided: what families provide.
    """
    nvcc, zig, front = toolchain.nvcc, toolchain.zig, toolchain.preprocessing
    trees = [(name, folder) for name, folder in sources.items() if name not in _OWN]
    own = [(name, sources[name]) for name in _OWN]
    cuda = [*(("cuda_include", folder) for folder in nvcc.includes), ("cuda", nvcc.root)]
    clang = [("zig", zig.lib), *[("preprocessing", front.lib)] * (front != zig)]
    return PlaceNames((*trees, *provided.items(), *own, *cuda, *clang))


_OWN = ("native", "generated")


def programs(toolchain: Toolchain) -> dict[str, str]:
    """What else compilations name: the host compiler, and the toolkit's include folder as an argument."""
    zig = toolchain.zig
    preprocessor = str(toolchain.preprocessing.preprocessor)
    return {"zig_program": str(zig.program), "preprocessor": preprocessor, "cuda_include": str(toolchain.nvcc.include)}


_WORD = re.compile(r"(?:\\.|[^\\\s])+")
_OCTAL = re.compile(r"(?:\\[0-3][0-7]{2})+")


def read_depfile(text: str, cwd: Path) -> tuple[str, ...]:
    r"""The inputs of the first rule, as absolute paths in the order of the file, without repeats.

    Lines are joined by a backslash at their end; a blank inside a name is written ``\ ``, a ``#`` as ``\#`` and a
    ``$`` as ``$$``. nvcc writes the target with a blank before the colon, GCC without, and the bytes of letters that are
    not ASCII as ``\303\274``.

    :raises ValueError: when there is no rule.
    """
    joined = text.replace("\r\n", "\n").replace("\\\n", " ")
    target = re.search(r"[^\s:]:(?=\s)|\s:(?=\s)", joined)
    if target is None:
        raise ValueError("the depfile holds no rule")
    rule = joined[target.end() :].split("\n", 1)[0]
    names = (re.sub(r"\\([ #\\])", r"\1", _letters(word)).replace("$$", "$") for word in _WORD.findall(rule))
    return tuple(dict.fromkeys(os.path.normpath(cwd / name) for name in names))


def decoded(data: bytes) -> str:
    """Text with paths in it, read as this system reads paths, whatever the bytes."""
    return data.decode(sys.getfilesystemencoding(), errors="surrogateescape")


def _letters(word: str) -> str:
    if os.sep == "\\":  # a folder may well be named by three digits
        return word
    return _OCTAL.sub(lambda found: decoded(bytes(int(code, 8) for code in found[0].split("\\")[1:])), word)


_CLOCK_TICK = 0.05
"""Seconds within which two changes of a file may carry the same time."""


class Moment(NamedTuple):
    """A moment by the machine's clock, which somebody may set, and by one that only goes forward; in seconds."""

    clock: float
    steady: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(time.time(), time.monotonic())


class _Look(NamedTuple):
    stamp: Stamp | None
    at: Moment

    @property
    def is_telling(self) -> bool:
        """Whether a change after this look gives another stamp, which one within the same tick may not."""
        return self.stamp is None or abs(self.at.clock - self.stamp.changed) > _CLOCK_TICK


class InputDigests:
    """SHA-256 by name (see :class:`PlaceNames`), remembered while a build runs."""

    def __init__(self, places: PlaceNames) -> None:
        self._places = places
        self._known: dict[str, tuple[Stamp | None, str | None]] = {}
        self._looks: dict[str, _Look] = {}

    def look(self, folders: Iterable[Path]) -> None:
        """Look at all files below some folders, so that a change is seen whatever the clock says."""
        for top in folders:
            for folder, subfolders, names in os.walk(top):
                subfolders[:] = [name for name in subfolders if not name.startswith(".")]
                for name in names:
                    path = os.path.join(folder, name)  # noqa: PTH118  (thousands of files)
                    self._looks[path] = _Look(Stamp.of(path), Moment.now())

    def digest(self, name: str) -> str | None:
        """The digest of a file's bytes when it was first asked for, or ``None`` when it cannot be read."""
        if name not in self._known:
            path = self._places.path(name)
            stamp = Stamp.of(str(path))
            try:
                self._known[name] = (stamp, sha256_file(path))
            except OSError:
                self._known[name] = (stamp, None)
        return self._known[name][1]

    def closure(self, paths: tuple[str, ...], started: Moment) -> dict[str, str] | None:
        """Names and digests of all that a compiler read.

        :param started: when the compiler started.
        :returns: ``None`` when a file was changed since, so that nobody knows which bytes the compiler saw.
        """
        names = [self._places.name(path) for path in paths]
        # All are checked, not only up to the first that changed: the next try knows them.
        settled = [self._is_settled(path, started) for path in paths]
        for name, path in zip(names, paths, strict=True):
            look = self._looks[path]
            if name in self._known and (look.stamp is None or self._known[name][0] != look.stamp):
                del self._known[name]  # it was changed after it was read
        if not all(settled):
            return None
        digests = {name: self.digest(name) for name in names}
        if any(Stamp.of(path) != self._looks[path].stamp for path in paths):
            return None  # changed while it was read
        return {name: digest for name, digest in digests.items() if digest is not None}

    def _is_settled(self, path: str, started: Moment) -> bool:
        """Whether a file is as it was when a compiler started."""
        before = self._looks.get(path)
        now = _Look(Stamp.of(path), Moment.now())
        if before is None or before.stamp != now.stamp:
            self._looks[path] = now
        if now.stamp is None:
            return False
        if before is not None and before.at.steady <= started.steady and before.is_telling:
            return before.stamp == now.stamp
        return now.stamp.changed < started.clock
