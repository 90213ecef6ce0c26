"""Names that stand for folders, so that keys do not depend on where things are."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import msgspec


class PlaceNames(msgspec.Struct, frozen=True):
    """Folders by name: ``{upstream}``, ``{native}``, ``{generated}``, ``{cuda_include}``, ``{cuda}``.

    A path inside one of them is written with the name of the first that holds it; every other path, a system header,
    as it is. Two folders may share a name when they are the same to a compiler: a toolkit's ``include`` and its
    ``targets/x86_64-linux/include``.
    """

    places: tuple[tuple[str, Path], ...]
    flavour: ModuleType = os.path
    """The rules for paths: ``posixpath`` or ``ntpath``."""

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each name; of several, the last."""
        return {name: str(folder) for name, folder in self.places}

    def name(self, path: str) -> str:
        """The name of an absolute path that a compiler printed, which may hold ``..``."""
        clean: str = self.flavour.normpath(path)
        for name, folder in self.places:
            prefix = f"{folder}{self.flavour.sep}"
            # On Windows compilers print paths in capitals as they please.
            if self.flavour.normcase(clean).startswith(self.flavour.normcase(prefix)):
                return f"{{{name}}}/{clean[len(prefix) :].replace(self.flavour.sep, '/')}"
        return clean.replace(self.flavour.sep, "/")

    def path(self, name: str) -> Path:
        """The path that :meth:`name` gave this name; of several, the first that is there."""
        paths = [folder / name[len(place) + 3 :] for place, folder in self.places if name.startswith(f"{{{place}}}/")]
        return next((path for path in paths if path.exists()), paths[0] if paths else Path(name))
