"""The digests of the files that compilers read, each read once."""

from __future__ import annotations

import os

from flashdepot.build.names import PlaceNames
from flashdepot.system.files import sha256_file


class InputDigests:
    """SHA-256 by name (see :class:`PlaceNames`), remembered while a build runs."""

    def __init__(self, places: PlaceNames) -> None:
        self._places = places
        self._known: dict[str, str | None] = {}

    def digest(self, name: str) -> str | None:
        """The digest of a file's bytes, or ``None`` when it cannot be read."""
        if name not in self._known:
            try:
                self._known[name] = sha256_file(self._places.path(name))
            except OSError:
                self._known[name] = None
        return self._known[name]

    def closure(self, paths: tuple[str, ...], started: float) -> dict[str, str] | None:
        """Names and digests of all that a compiler read.

        :param started: when the compiler started, in seconds since the epoch.
        :returns: ``None`` when a file was changed since, so that nobody knows which bytes the compiler saw.
        """
        names = [self._places.name(path) for path in paths]
        for name, path in zip(names, paths, strict=True):
            try:
                changed = os.stat(path).st_mtime >= started  # noqa: PTH116  (hundreds of files for each unit)
            except OSError:
                changed = True
            if changed:
                for stale in names:
                    self._known.pop(stale, None)
                return None
            self.digest(name)
        digests = {name: self._known[name] for name in names}
        return {name: digest for name, digest in digests.items() if digest is not None}
