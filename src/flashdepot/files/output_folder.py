"""The one way to write into a folder that is the user's.

Below the folder that the user chose no symbolic link is followed, and no file is replaced or removed unless its bytes are
known to be flashdepot's: by the listing of an earlier run, or because they are what is about to be written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.directory import is_plain_folder, open_plain, plain_folder, plain_path, status_of
from flashdepot.files.disk import sync_folder
from flashdepot.files.user_files import OutputFile, Written, folder_errors, identity_of, require_folder, require_safe

_SMALL = 1 << 20
"""Bytes up to which a file is checked for being our own in disguise."""

_STAGE = re.compile(r"\.flashdepot-export-[0-9a-f]{8}")
_STAGE_LIFETIME = 3600.0
"""Seconds after which another run's stage counts as left behind by a kill."""

_NEW, _EARLIER = "new", "earlier"
_NAMES_SHOWN = 3


_SCHEMA = 1
_KIND = "files that flashdepot wrote here"


class _Listing(msgspec.Struct):
    kind: Literal["files that flashdepot wrote here"]
    files: dict[str, str]


def read_listing(data: bytes) -> Written:
    """What the listing of a folder without one of its own says; :raises ValueError: when it is not such a listing."""
    files = msgspec.json.decode(data, type=_Listing).files
    return {place: frozenset({identity}) for place, identity in files.items()}


class OutputFolder(msgspec.Struct, frozen=True):
    """A folder of the user's, and what may be done in it.

    :param chosen: the folder that the user named. Links on the way to it are the user's own.
    :param noun: what the folder is: a library, a crate.
    :param listing: the file in it that says what was written there.
    :param elsewhere: how the person at the keyboard names another folder.
    :param inside: a folder in ``chosen`` to work in; that name is not followed when it is a link.
    :param read: what the bytes of the listing say; raises :class:`ValueError` when it is not one that flashdepot writes.
    :param own: the folder in it that this run writes, with a ``/`` at its end. Those next to it, of other runs, stay.
    :param disguised: whether bytes of a file are those with one of some digests, as another program keeps them.
    """

    chosen: Path
    noun: str
    listing: str
    elsewhere: str
    inside: str = ""
    read: Callable[[bytes], Written] = read_listing
    own: str = ""
    disguised: Callable[[bytes, frozenset[str]], bool] = lambda _data, _digests: False

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(os.path.abspath(self.chosen)) / self.inside  # noqa: PTH100  (links stay as they were typed)

    def write(self, files: Sequence[OutputFile], listing: bytes | None = None) -> Path:
        """Put files there in place of those of an earlier run: all of the new ones, or all of the old ones.

        What is right already is left as it is. Everything else is written to a stage inside the folder and verified; then
        the earlier listing is moved away, the files are replaced, and the new listing comes last: a folder with a listing
        is whole. The folder itself is never replaced, so it can be a mount point. Nothing has changed after any error until
        then; after one of replacing, the same command ends what was begun.

        :param listing: the bytes of the listing; without them it lists the files and their identities.
        :returns: the folder, absolute.
        """
        for place in (*(file.place for file in files), self.listing):
            require_safe(place)
        with folder_errors(self.path, self.elsewhere), self._open() as folder:
            known = self._earlier(folder)
            kept = {place: min(identities) for place, identities in known.items() if self._is_next_to_own(place)}
            if listing is None:
                rows = dict(sorted({**kept, **{file.place: file.identity for file in files}}.items()))
                listing = (json.dumps({"schema": _SCHEMA, "kind": _KIND, "files": rows}, indent=2) + "\n").encode()
            listed = OutputFile.of(self.listing, listing)
            there = {file.place: identity_of(folder, file.place) for file in (*files, listed)}
            obsolete = {place: identities for place, identities in known.items() if place not in {*there, *kept}}
            for file in files:
                known[file.place] = known.get(file.place, frozenset()) | file.identities
            for file in files:
                if (found := there[file.place]) is not None and found not in known[file.place]:
                    self._require_disguised(file.place, found, known[file.place])
            changed = [f for f in files if there[f.place] != f.identity]
            if not changed and there[listed.place] == listed.identity:
                return self.path
            stage = plain_folder(folder, f".flashdepot-export-{os.urandom(4).hex()}", create=True)
            try:
                new = plain_folder(stage, _NEW, create=True)
                for file in (*changed, listed):
                    file.put(new)
            except BaseException:
                shutil.rmtree(stage, ignore_errors=True)
                raise
            try:
                self._replace(folder, stage, changed, obsolete)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.utime(stage, (0, 0))  # the next run knows by it what is ours here, and removes it at once
                raise
            for path in list(folder.iterdir()):
                if path == stage or (_is_stage(path) and time.time() - path.lstat().st_mtime > _STAGE_LIFETIME):
                    shutil.rmtree(path, ignore_errors=True)
        return self.path

    def require_usable(self) -> None:
        """Before long work: raise what :meth:`write` would raise of the folder. Nothing is made there."""
        require_folder(self.chosen, self.elsewhere)
        if self.path.is_dir():
            with folder_errors(self.path, self.elsewhere), self._open() as folder:
                self._earlier(folder)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Path]:
        """Open the folder, and take it away again when it was made here and nothing was put into it."""
        chosen = Path(os.path.abspath(self.chosen))  # noqa: PTH100
        made = [path for path in dict.fromkeys((self.path, chosen)) if not path.exists()]
        chosen.mkdir(parents=True, exist_ok=True)
        try:
            yield plain_folder(chosen, self.inside, create=True) if self.inside else chosen
        except BaseException:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise

    def _earlier(self, folder: Path) -> dict[str, frozenset[str]]:
        """What earlier runs wrote, by listings here and in stages of killed runs; :raises UsageError: for another folder."""
        paths = sorted(folder.iterdir())
        stages = [path for path in paths if _is_stage(path)]
        held = [path.name for path in paths if path not in stages]
        listings = [self._listed(stage, place) for stage in stages for place in (_EARLIER, f"{_NEW}/{self.listing}")]
        ours = self._listed(folder, self.listing)
        if ours is None and held and (self.listing in held or not stages):
            shown = ", ".join(held[:_NAMES_SHOWN]) + (", ..." if len(held) > _NAMES_SHOWN else "")
            raise UsageError(
                f"{self.path} is not empty and not a {self.noun} that flashdepot wrote: it has {shown}. "
                "Writing there could destroy files.",
                hint=f"Name a new or an empty folder: {self.elsewhere}",
            )
        known: dict[str, frozenset[str]] = {}
        for listing in (*listings, ours):
            for place, identities in (listing or {}).items():
                known[place] = known.get(place, frozenset()) | identities
        return known

    def _is_next_to_own(self, place: str) -> bool:
        together, _, name = self.own.rstrip("/").rpartition("/")
        other, _, inside = place.removeprefix(f"{together}/").partition("/")
        return bool(together and inside) and place.startswith(f"{together}/") and other != name

    def _listed(self, folder: Path, place: str) -> Written | None:
        try:
            with open_plain(plain_path(folder, place)) as file:
                return self.read(file.read())
        except (OSError, ValueError, RecursionError):
            return None

    def _require_disguised(self, place: str, identity: str, known: frozenset[str]) -> None:
        """:raises UsageError: unless what is there is our own file in disguise: no other is replaced, nor a link or a folder."""
        path = self.path / place
        if not identity or identity.startswith("-> "):
            kind = "a symbolic link" if identity else "a folder" if path.is_dir() else "not a file"
            what = f"{path} is {kind}, where a file of the {self.noun} goes: it is neither followed nor replaced."
        else:
            with open_plain(path) as file:
                if os.fstat(file.fileno()).st_size <= _SMALL and self.disguised(file.read(), known):
                    return
            what = (
                f"{path} is not a file that flashdepot wrote, or it was changed since: its bytes are no longer those that "
                "were written. It is not replaced."
            )
        raise UsageError(
            what, hint=f"Move it away and run the same command again, or name another folder: {self.elsewhere}"
        )

    def _replace(self, folder: Path, stage: Path, files: Sequence[OutputFile], obsolete: Written) -> None:
        """From here to the end the folder has no listing, so nobody takes it for whole."""
        if status_of(folder / self.listing) is not None:
            (folder / self.listing).replace(stage / _EARLIER)
            sync_folder(stage)
        for place in sorted(obsolete):
            _remove_obsolete(folder, place, obsolete[place])
        for file in files:
            plain_path(stage / _NEW, file.place).replace(plain_path(folder, file.place, create=True))
        sync_folder(folder)
        (stage / _NEW / self.listing).replace(folder / self.listing)
        sync_folder(folder)


def _remove_obsolete(folder: Path, place: str, known: frozenset[str]) -> None:
    """Remove a file of an earlier run if its bytes are still those, and the folders that are empty then."""
    with contextlib.suppress(OSError, FlashdepotError):
        require_safe(place)
        if identity_of(folder, place) in known:
            path = plain_path(folder, place)
            path.unlink()
            for emptied in path.parents[: place.count("/")]:
                emptied.rmdir()  # fails where somebody keeps something in it


def _is_stage(path: Path) -> bool:
    return _STAGE.fullmatch(path.name) is not None and is_plain_folder(path.lstat())
