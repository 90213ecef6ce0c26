"""The one way to write into a folder that is the user's.

Below the folder that the user chose no symbolic link is followed, and no file is replaced or removed unless its bytes are
known to be flashdepot's: by the listing of an earlier run, or because they are what is about to be written.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.directory import Directory, is_plain_folder
from flashdepot.files.user_files import (
    OutputFile,
    OutputListing,
    Written,
    folder_errors,
    identity_of,
    is_beginning,
    require_folder,
    require_safe,
)

_SMALL = 1 << 20
"""Bytes up to which a file is looked at for being one of ours in disguise."""

_STAGE = r"\.flashdepot-export-[0-9a-f]{8}"
_STAGE_LIFETIME = 3600.0
"""Seconds after which another run's stage counts as left behind by a kill."""

_NEW, _EARLIER = "new", "earlier"
_NAMES_SHOWN = 3


class OutputFolder(msgspec.Struct, frozen=True):
    """A folder of the user's, and what may be done in it.

    :param chosen: the folder that the user named. Links on the way to it are the user's own.
    :param noun: what the folder is: a library, a crate.
    :param listing: where it is written down what was written here.
    :param elsewhere: how the person at the keyboard names another folder.
    :param inside: a folder in ``chosen`` to work in; that name is not followed when it is a link.
    :param beside_others: whether the folder may hold other things although there is no listing yet.
    :param disguised: whether bytes of a file are those with one of some digests, as another program keeps them.
    """

    chosen: Path
    noun: str
    listing: OutputListing
    elsewhere: str
    inside: str = ""
    beside_others: bool = False
    disguised: Callable[[bytes, frozenset[str]], bool] = lambda _data, _digests: False

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(os.path.abspath(self.chosen)) / self.inside  # noqa: PTH100  (links stay as they were typed)

    def write(self, files: Sequence[OutputFile], listing: bytes) -> Path:
        """Put files there in place of those of an earlier run: all of the new ones, or all of the old ones.

        What is there already and right is left as it is. Everything else is first written to a stage inside the folder
        and verified. Then the earlier listing is moved away,
        the files are replaced, and the new listing comes last. So a folder with a listing is whole whenever the process
        is killed; and since the folder itself is never replaced, it can be a mount point or the current folder.

        :returns: the folder, absolute.
        :raises UsageError: when a link or a file of somebody else's is in the way; nothing has changed then.
        :raises IntegrityError: when bytes are not what their digest says; likewise.
        :raises MissingToolError: when the disk is full or may not be written; likewise.
        """
        listed = OutputFile.of(self.listing.place, listing)
        for file in (*files, listed):
            require_safe(file.place)
        with folder_errors(self.path, self.elsewhere), self._open() as folder:
            earlier = self._earlier(folder)
            doubtful = [file for file in files if not self._is_ours(folder, file, earlier)]
            obsolete = {place: known for place, known in earlier.items() if place not in {file.place for file in files}}
            files = [file for file in files if not self._is_there(folder, file)]
            if not files and self._is_there(folder, listed):
                return self.path
            stage = f".flashdepot-export-{os.urandom(4).hex()}"
            try:
                with folder.folder(stage, create=True) as staged, staged.folder(_NEW, create=True) as new:
                    for file in (*files, listed):
                        _stage(file, new)
                    for file in doubtful:
                        self._require_part(folder, new, file, earlier)
            except BaseException:
                folder.remove_tree(stage)
                raise
            self._replace(folder, stage, files, obsolete)
            _remove_stages(folder, stage)
        return self.path

    def require_usable(self) -> None:
        """Before long work: raise what :meth:`write` would raise of the folder. Nothing is made there."""
        require_folder(self.chosen, self.elsewhere)
        if self.path.is_dir():
            with folder_errors(self.path, self.elsewhere), self._open() as folder:
                self._earlier(folder)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Directory]:
        """Open the folder, and take it away again when it was made here and nothing came to be in it."""
        made = [self.path] if not self.path.exists() else []
        if made and self.inside and not self.path.parent.exists():
            made.append(self.path.parent)
        chosen = Path(os.path.abspath(self.chosen))  # noqa: PTH100
        chosen.mkdir(parents=True, exist_ok=True)
        try:
            with Directory.open(chosen) as top, self._descend(top, [self.inside] if self.inside else []) as folder:
                yield folder
        except BaseException:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise

    @contextlib.contextmanager
    def _descend(self, folder: Directory, names: Sequence[str]) -> Iterator[Directory]:
        """Give a folder below this one, made where it is not there yet."""
        self._require_folders(folder, names)
        with folder.within(names, create=True) as found:
            yield found

    def _require_folders(self, folder: Directory, names: Sequence[str]) -> None:
        """:raises UsageError: when one of the folders on the way is a link or a file."""
        with contextlib.ExitStack() as stack:
            for name in names:
                status = folder.status(name)
                if status is None:
                    return
                if not is_plain_folder(status):
                    raise self._in_the_way(folder.path / name, status)
                folder = stack.enter_context(folder.folder(name))

    def _earlier(self, folder: Directory) -> Written:
        """What earlier runs wrote: by the listing, and by those that a killed run left in its stage.

        :raises UsageError: when the folder holds something else.
        """
        known: dict[str, frozenset[str]] = {}
        stages = [name for name in folder.names() if _is_stage(folder, name)]
        for stage in stages:
            with folder.folder(stage) as staged:
                for place in ([_EARLIER], [_NEW, self.listing.place]):
                    _add(known, self._read_listing(staged, place))
        held = [name for name in folder.names() if name not in stages]
        if self.listing.place in held:
            if (found := self._read_listing(folder, [self.listing.place])) is None:
                raise self._not_ours(held)
            _add(known, found)
        elif held and not stages and not self.beside_others:
            raise self._not_ours(held)
        return known

    def _read_listing(self, folder: Directory, place: Sequence[str]) -> Written | None:
        try:
            with folder.within(place[:-1]) as inner, inner.open_file(place[-1]) as file:
                return self.listing.read(file.read())
        except (OSError, ValueError, RecursionError):
            return None

    def _is_ours(self, folder: Directory, file: OutputFile, earlier: Written) -> bool:
        """Whether a place is free or has what may be replaced; false when only its bytes can tell.

        :raises UsageError: when something is there that is never replaced.
        """
        *folders, name = file.place.split("/")
        self._require_folders(folder, folders)
        known = earlier.get(file.place, frozenset()) | file.identities
        try:
            with folder.within(folders) as parent:
                status = parent.status(name)
                if status is None or identity_of(parent, name, status) in known:
                    return True
                if not stat.S_ISREG(status.st_mode):
                    raise self._in_the_way(parent.path / name, status)
                return False
        except FileNotFoundError:
            return True

    def _is_there(self, folder: Directory, file: OutputFile) -> bool:
        """Whether a file is there exactly as it would be written, so that it need not be."""
        *folders, name = file.place.split("/")
        with contextlib.suppress(OSError), folder.within(folders) as parent:
            status = parent.status(name)
            return (
                file.modified_ns is None and status is not None and identity_of(parent, name, status) == file.identity
            )
        return False

    def _require_part(self, folder: Directory, new: Directory, file: OutputFile, earlier: Written) -> None:
        """:raises UsageError: unless the file that is there is a part of the new one, or one of ours in disguise."""
        *folders, name = file.place.split("/")
        known = earlier.get(file.place, frozenset()) | file.identities
        with folder.within(folders) as parent, parent.open_file(name) as there:
            if os.fstat(there.fileno()).st_size <= _SMALL and self.disguised(there.read(), known):
                return
            there.seek(0)
            with new.within(folders) as staged:
                if not file.link and _begins(there, staged, name):
                    return
            raise UsageError(
                f"{parent.path / name} is not a file that flashdepot wrote, or it was changed since: its bytes are no "
                f"longer those that were written. It is not replaced.",
                hint=f"Move it away and run the same command again, or name another folder: {self.elsewhere}",
            )

    def _replace(self, folder: Directory, stage: str, files: Sequence[OutputFile], obsolete: Written) -> None:
        """From here to the end the folder has no listing, so nobody takes it for whole."""
        with folder.folder(stage) as staged, staged.folder(_NEW) as new:
            if folder.status(self.listing.place) is not None:
                folder.move(self.listing.place, staged, _EARLIER)
                staged.sync()
            for place in sorted(obsolete):
                self._remove_obsolete(folder, place, obsolete[place])
            for file in files:
                *folders, name = file.place.split("/")
                with new.within(folders) as source, self._descend(folder, folders) as parent:
                    source.move(name, parent, name)
            folder.sync()
            new.move(self.listing.place, folder, self.listing.place)
            folder.sync()

    def _remove_obsolete(self, folder: Directory, place: str, known: frozenset[str]) -> None:
        """Remove a file of an earlier run if its bytes are still those, and the folders that are empty then."""
        with contextlib.suppress(OSError, FlashdepotError):
            require_safe(place)
            *folders, name = place.split("/")
            with folder.within(folders) as parent:
                status = parent.status(name)
                if status is None or identity_of(parent, name, status) not in known:
                    return
                parent.remove(name)
            while folders:
                *folders, name = folders
                with folder.within(folders) as parent:
                    if not parent.remove_folder(name):  # somebody keeps something in it
                        return

    def _in_the_way(self, path: Path, status: os.stat_result) -> UsageError:
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a folder" if stat.S_ISDIR(status.st_mode) else ""
        what = kind or ("a file" if stat.S_ISREG(status.st_mode) else "neither a file nor a folder")
        why = "is followed below the folder that was named" if kind == "a symbolic link" else "is replaced"
        return UsageError(
            f"{path} is {what}, which is in the way of a file of the {self.noun}: nothing of that kind {why}.",
            hint=f"Move it away and run the same command again, or name another folder: {self.elsewhere}",
        )

    def _not_ours(self, held: Sequence[str]) -> UsageError:
        shown = ", ".join(held[:_NAMES_SHOWN]) + (", ..." if len(held) > _NAMES_SHOWN else "")
        return UsageError(
            f"{self.path} is not empty and is no {self.noun} that flashdepot wrote: it holds {shown}. "
            "Writing there could destroy files.",
            hint=f"Name a new or an empty folder: {self.elsewhere}",
        )


def _stage(file: OutputFile, new: Directory) -> None:
    *folders, name = file.place.split("/")
    with new.within(folders, create=True) as parent:
        file.put(parent, name)


def _begins(there: IO[bytes], staged: Directory, name: str) -> bool:
    with staged.open_file(name) as new:
        return is_beginning(there, new)


def _add(known: dict[str, frozenset[str]], found: Written | None) -> None:
    for place, identities in (found or {}).items():
        known[place] = known.get(place, frozenset()) | identities


def _is_stage(folder: Directory, name: str) -> bool:
    if not re.fullmatch(_STAGE, name):
        return False
    status = folder.status(name)
    return status is not None and is_plain_folder(status)


def _remove_stages(folder: Directory, ours: str) -> None:
    for name in folder.names():
        if _is_stage(folder, name):
            status = folder.status(name)
            if name == ours or (status is not None and time.time() - status.st_mtime > _STAGE_LIFETIME):
                folder.remove_tree(name)
