"""One file of a server: what is there already is not fetched again, and it arrives whole or not at all."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import requests
from requests.utils import urldefragauth

from flashdepot.errors import IntegrityError, MissingToolError
from flashdepot.events import Download
from flashdepot.files.disk import disk_errors, set_mode, sha256_file, write_all
from flashdepot.files.documents import write_json
from flashdepot.files.locks import lock_file
from flashdepot.net.errors import Note, Patience, network_errors
from flashdepot.net.transport import content_range, length_of, raw_chunks

_LARGEST = 8 << 30
_PARTIAL, _UNSATISFIABLE = 206, 416
_SPARE_DISK = 16 << 20
_CHANGED = "its file has changed since"


class Remote(msgspec.Struct, frozen=True):
    """A file on a server; ``sha256`` is empty and ``size`` 0 where they are not known."""

    url: str
    sha256: str = ""
    size: int = 0


class Downloaded(msgspec.Struct, frozen=True):
    """A file that arrived: its place, SHA-256 and bytes, and how many of them had to be fetched now."""

    path: Path
    sha256: str
    size: int
    fetched: int


def download(
    remote: Remote,
    destination: Path,
    session: requests.Session,
    *,
    timeout: float = 30,
    elsewhere: str = "name another address.",
    on_progress: Download | None = None,
    on_note: Note = lambda _: None,
) -> Downloaded:
    """Fetch a file, going on from where an earlier try of this or another process was stopped.

    Bytes arrive next to ``destination`` under a hidden name and stay there when the network, the disk or the user stops
    it. A server is asked only for the rest, on the condition that its file is still the same (RFC 9110, 13.1.5). A second
    process that wants the same file waits for the first.

    :param elsewhere: how the user can name another place; ``on_note`` is called with a sentence when it waits.
    :raises IntegrityError: when size or SHA-256 are not the expected ones; nothing is kept then.
    """
    name = destination.name
    with disk_errors(destination.parent):
        waiting = f"Another process is fetching {name}: waiting for it."
        with lock_file(destination.with_name(f".{name}.lock.tmp"), lambda: on_note(waiting)) as held:
            if there := already_there(remote, destination):
                return there
            transfer = _Transfer(
                remote, destination, session, timeout, on_progress or (lambda _done, _total: None), on_note
            )
            try:
                with network_errors(name, transfer.server, elsewhere):
                    return transfer.run()
            finally:
                if remote.sha256 and not transfer.part.exists():
                    held.discard()  # anyone who still waits for it finds the file, or a digest decides


def already_there(remote: Remote, destination: Path) -> Downloaded | None:
    """The file that is to be fetched, where it is there already, by its digest."""
    if remote.sha256 and destination.is_file() and sha256_file(destination) == remote.sha256:
        return Downloaded(destination, remote.sha256, destination.stat().st_size, 0)
    return None


class _Origin(msgspec.Struct, frozen=True):
    """What the beginning of a file belongs to: its address, and the server's name for that state of it."""

    url: str
    validator: str = ""


@dataclass
class _Transfer:
    remote: Remote
    destination: Path
    session: requests.Session
    timeout: float
    on_progress: Download
    on_note: Note
    fetched: int = 0
    joined: bool = False

    def __post_init__(self) -> None:
        self.server = urldefragauth(self.remote.url)
        self.part = self.destination.with_name(f".{self.destination.name}.download.tmp")
        self.origin_file = self.destination.with_name(f".{self.destination.name}.origin.tmp")

    def run(self) -> Downloaded:
        self._receive_all()
        try:
            return self._accept()
        except IntegrityError:
            if not self.joined:
                raise
        self.on_note(f"What had arrived of {self.destination.name} was not its beginning: starting again.")
        self._receive_all()
        return self._accept()

    def _receive_all(self) -> None:
        patience = Patience(self.on_note)
        most = self._usable()
        while True:
            try:
                return self._receive()
            except requests.RequestException as error:  # noqa: PERF203  (what it costs is nothing next to a request)
                if (have := self._usable()) > most:
                    most = have
                    patience.refill()
                patience.endure(error)
                if have and not isinstance(error, requests.HTTPError):
                    self.on_note(f"The connection was lost at {have} bytes of {self.destination.name}: continuing.")

    def _receive(self) -> None:
        """Ask once, and write what comes."""
        have = self._usable()
        # Some servers call a .tar.gz "gzip-encoded", and a client that trusts it stores other bytes.
        headers = {"Accept-Encoding": "identity"}
        if have:
            validator = self._origin().validator
            headers |= {"Range": f"bytes={have}-"} | ({"If-Range": validator} if validator else {})
        with self.session.get(self.remote.url, headers=headers, stream=True, timeout=self.timeout) as response:
            if response.status_code == _UNSATISFIABLE and have:
                if content_range(response)[2] != have:
                    self._discard()
                    raise requests.ConnectionError(_CHANGED)
                self.joined = True
                return
            response.raise_for_status()
            start, total = self._agree(response, have)
            if not start:
                write_json(self.origin_file, msgspec.to_builtins(_Origin(self.server, _validator(response))))
            self._require_room(start, total)
            most = self.remote.size or _LARGEST
            # Unbuffered: what was received is there whatever happens to this process.
            with self.part.open("r+b" if start else "wb", buffering=0) as file:
                if start:
                    file.seek(start)
                    file.truncate()
                self.on_progress(start, total)
                for chunk in raw_chunks(response):
                    write_all(file, chunk)
                    start += len(chunk)
                    self.fetched += len(chunk)
                    self.on_progress(start, total)
                    if start > most:
                        break
            if start > most:  # the file is closed by now: Windows removes none that is open
                raise self._wrong_size(f"more than {start}")

    def _agree(self, response: requests.Response, have: int) -> tuple[int, int | None]:
        """Where the server's bytes begin, and how many the whole file has; :raises IntegrityError: for other bytes."""
        if response.status_code != _PARTIAL:
            total = length_of(response)
            self._require_size(total)
            return 0, total
        first, last, total = content_range(response)
        if not have or first != have or total is None or last != total - 1:
            said = response.headers.get("Content-Range", "nothing")
            self._discard()
            raise IntegrityError(
                f"{self.server} was asked for {self.destination.name} from byte {have} on and sent '{said}'.",
                hint="Nothing was kept. The server, or a proxy before it, answers ranges wrongly: try again.",
            )
        known, now = self._origin().validator, _validator(response)
        if known and now and known != now:
            self._discard()
            raise requests.ConnectionError(_CHANGED)
        self._require_size(total)
        self.joined = True
        return have, total

    def _usable(self) -> int:
        """How many bytes of this very file are there. Without a validator only a digest can tell that they fit."""
        origin = self._origin()
        if origin.url != self.server or not (origin.validator or self.remote.sha256) or not self.part.is_file():
            return 0
        return self.part.stat().st_size

    def _origin(self) -> _Origin:
        try:
            return msgspec.json.decode(self.origin_file.read_bytes(), type=_Origin)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return _Origin("")

    def _accept(self) -> Downloaded:
        """Give the file its name when it is the right one."""
        size = self.part.stat().st_size
        self._require_size(size)
        digest = sha256_file(self.part)
        if self.remote.sha256 not in {"", digest}:
            self._discard()
            raise IntegrityError(
                f"{self.destination.name} from {self.server} is not the expected file: its SHA-256 is {digest}, "
                f"expected {self.remote.sha256}.",
                hint="Nothing was kept. The file was replaced, or the server cannot be trusted: find out which "
                "before you accept the new digest.",
            )
        with self.part.open("r+b") as file:
            os.fsync(file.fileno())
        set_mode(self.part, 0o644)
        self.part.replace(self.destination)
        self.origin_file.unlink(missing_ok=True)
        return Downloaded(self.destination, digest, size, self.fetched)

    def _require_size(self, size: int | None) -> None:
        wanted = self.remote.size
        if size is not None and (size > _LARGEST or (wanted and size != wanted)):
            raise self._wrong_size(str(size))

    def _wrong_size(self, size: str) -> IntegrityError:
        self._discard()
        return IntegrityError(
            f"{self.destination.name} from {self.server} has {size} bytes, "
            f"expected {self.remote.size or f'at most {_LARGEST}'}.",
            hint="Nothing was kept. This is not the file that was published.",
        )

    def _require_room(self, start: int, total: int | None) -> None:
        left = (total or self.remote.size or start) - start
        free = shutil.disk_usage(self.destination.parent).free
        if left + _SPARE_DISK > free:
            raise MissingToolError(
                f"{self.destination.name} needs {left / 1e6:,.1f} MB more, and the disk of {self.destination.parent} has {free / 1e6:,.1f} MB free.",
                hint="Free space there ('flashdepot depot gc' shows what it would free), or use another: --depot DIR",
            )

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.origin_file.unlink(missing_ok=True)


def _validator(response: requests.Response) -> str:
    """What names this state of the file: a strong ETag, else the date of its last change (RFC 9110, 13.1.5)."""
    etag = response.headers.get("ETag", "").strip()
    if etag and not etag.startswith("W/"):
        return etag
    return response.headers.get("Last-Modified", "").strip()
