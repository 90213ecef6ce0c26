"""Names that stand for folders, so that keys do not depend on where things are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlaceNames:
    """Folders by name: ``{upstream}``, ``{native}``, ``{generated}``, ``{cuda}``.

    A path inside one of them is written with its name; every other path, a system header, as it is.
    """

    places: tuple[tuple[str, Path], ...]

    def name(self, path: str) -> str:
        """The name of an absolute path that a compiler printed, which may hold ``..``."""
        clean = os.path.normpath(path)
        for name, folder in self.places:
            prefix = f"{folder}{os.sep}"
            if clean.startswith(prefix):
                return f"{{{name}}}/{clean[len(prefix) :].replace(os.sep, '/')}"
        return clean.replace(os.sep, "/")

    def path(self, name: str) -> Path:
        """The path that :meth:`name` gave this name."""
        for place, folder in self.places:
            prefix = f"{{{place}}}/"
            if name.startswith(prefix):
                return folder / name[len(prefix) :]
        return Path(name)
