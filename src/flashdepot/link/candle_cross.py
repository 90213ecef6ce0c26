"""candle's archive for another system or CPU than this machine's: compiled by zig, and kept apart from others by names.

Linkers that join objects and make names local work for their own system. So here each object stays one, and what it
defines for the others gets a name that nobody else has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from flashdepot.binary.archive import read_members
from flashdepot.binary.private_names import (
    defined_names,
    for_every_linker,
    with_private_names,
    with_private_runtime,
)
from flashdepot.binary.window import open_window
from flashdepot.errors import CompileError
from flashdepot.system.process import first_error, run
from flashdepot.targets import Row
from flashdepot.toolchain.zig import Zig

ZigSource = Callable[[], Zig]
"""Gives zig, which it may have to fetch."""

_FLAGS = ("-std=c99", "-O2", "-DFA_STATIC", "-ffunction-sections", "-fno-stack-protector", "-fno-sanitize=all")


class ByZig(msgspec.Struct, frozen=True):
    """What an archive is made of and for.

    :param include: the folder of the library's header.
    :param static: the library, whose objects go into the archive.
    :param offered: the names, or patterns of them, that the archive defines for others. Every other name that it defines
        is its own, whatever else a program links.
    """

    zig: Zig
    row: Row
    include: Path
    static: Path
    offered: tuple[str, ...]

    def make(self, sources: Sequence[Path], defines: Sequence[str], work: Path) -> Path:
        """An archive of the library's objects and of C sources.

        :param defines: more options for the compiler.
        :param work: a new folder for what is made on the way.
        :raises CompileError: when zig refuses.
        :raises IntegrityError: when the library is damaged.
        """
        work.mkdir()
        compiled = [self._compiled(source, defines, work) for source in sources]
        parts = [(path.name, with_private_runtime(path.read_bytes(), path.name)) for path in compiled]
        with open_window(self.static) as window:
            members = [(m.name, m.window.take(0, m.window.size, "member")) for m in read_members(window)]
        parts += [(name, for_every_linker(data, name)) for name, data in members]
        defined = frozenset[str]().union(*(defined_names(data, name) for name, data in parts))
        private = {name for name in defined if not any(fnmatchcase(name, pattern) for pattern in self.offered)}
        objects = []
        for index, (name, data) in enumerate(parts):
            objects.append(work / f"{index}-{Path(name).name}")
            objects[-1].write_bytes(with_private_names(data, name, private))
        made = work / "made.a"
        self._run(["ar", "rcsD", str(made), *map(str, objects)], work)
        return made

    def _compiled(self, source: Path, defines: Sequence[str], work: Path) -> Path:
        made = work / f"{source.stem}{self.row.system.object_suffix}"
        words = ["-target", self.row.zig, *_FLAGS, *defines, f"-I{self.include}", "-c", str(source), "-o", str(made)]
        self._run(["cc", *words], work)
        return made

    def _run(self, words: Sequence[str], work: Path) -> None:
        done = run([str(self.zig.program), *words], env={**os.environ, **self.zig.environment(work)}, timeout=600)
        if done.status != 0:
            told = " ".join([self.zig.program.name, *words])
            raise CompileError(f"The archive for candle cannot be made: {first_error(done.output)}", hint=told)
