"""Headers that are compiled once while a build runs, and that no build leaves behind.

A precompiled header holds paths of this machine, so it is in no depot. It only saves time: an action that begins with one
makes the same bytes without it, and is run without when anything about it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flashdepot.build.depfile import decoded, read_depfile
from flashdepot.build.inputs import Moment
from flashdepot.model.action import Action, PrecompiledHeader, filled

_WORTH_IT = 3
"""The use from which on a header is made first: making it takes about as long as two uses save."""


@dataclass
class SharedHeader:
    """One precompiled header: made by the command of an action that wants it, then used by those that follow.

    ``started`` is when its compiler was started: what changed since is not in it.
    """

    words: PrecompiledHeader
    folder: Path
    uses: int = 0
    started: Moment | None = None
    made: bool = False
    spoiled: bool = False
    _read: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / "header.pch"

    def making(self, names: Mapping[str, str]) -> list[str]:
        """The command that makes it, from now on."""
        self.folder.mkdir()
        source = self.folder / "empty.cu"
        source.touch()
        self.started = Moment.now()
        outputs = {"output": self.path, "depfile": self.path.with_suffix(".d"), "source": source}
        return filled({**names, **{name: str(path) for name, path in outputs.items()}}, *self.words.make)

    def keep(self, cwd: Path) -> None:
        """It was made."""
        self._read = read_depfile(decoded(self.path.with_suffix(".d").read_bytes()), cwd)
        self.made = True

    def using(self) -> list[str]:
        """What a command takes besides."""
        return filled({"header": str(self.path)}, *self.words.use)

    def with_its_own(self, paths: Iterable[str]) -> tuple[str, ...]:
        """What a compiler read that began with it: what the depfile says, and what was asked for when it was made."""
        ours = f"{self.folder}/"
        return tuple(dict.fromkeys(path for path in (*self._read, *paths) if not path.startswith(ours)))


@dataclass
class SharedHeaders:
    """Those of one build, in folders of their own below ``work``."""

    work: Path
    _known: dict[tuple[str, PrecompiledHeader], SharedHeader] = field(default_factory=dict)

    def next_for(self, action: Action) -> SharedHeader | None:
        """What the next run of an action begins with: a header that is made, or that it is to make first.

        :returns: ``None`` when it has none, or does without: while too few have asked for it or another makes it, and
            when it came to nothing.
        """
        if action.header is None:
            return None
        key = (action.place, action.header)
        header = self._known.setdefault(key, SharedHeader(action.header, self.work / f"header-{len(self._known)}"))
        header.uses += 1
        if header.spoiled or (header.started is None and header.uses < _WORTH_IT):
            return None
        return header if header.made or header.started is None else None
