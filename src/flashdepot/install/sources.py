"""Where a published wheel is to be had, and having it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace
from requests.utils import urldefragauth

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.events import Download
from flashdepot.install.wheel_file import WheelFile
from flashdepot.system.download import Remote
from flashdepot.system.files import sha256_file
from flashdepot.system.net import fetch_url
from flashdepot.system.network_errors import NotThereError
from flashdepot.system.own_names import writable
from flashdepot.system.patience import Note
from flashdepot.system.use import keep

NAMED = "named"
"""The source of a wheel that the user named, by path or address."""

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_FILENAME = re.compile(r"[\w.+!-]+\.whl")
_FRAGMENT = re.compile(r"sha256=([0-9a-fA-F]{64})")
_ELSEWHERE = "take another wheel: flashdepot resolve shows them, --wheel FILE or URL names one"


class WheelAddress(msgspec.Struct, frozen=True):
    """A wheel to fetch. ``sha256`` is empty and ``size`` 0 where they are not known; ``url`` may have credentials.

    ``recorded_by`` is the record of its release that named the digest, empty where the catalog, a lock or the user did.
    """

    source: str
    filename: str
    url: str
    sha256: str
    size: int
    recorded_by: str = ""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return urldefragauth(self.url)

    @property
    def host(self) -> str:
        """The server that it is fetched from."""
        return urlsplit(self.url).hostname or self.shown

    def place(self, downloads: Path) -> Path:
        """Where its file is kept, by its digest or, without one, by its address."""
        key = self.sha256 or hashlib.sha256(self.shown.encode()).hexdigest()
        return writable(downloads / key[:16]) / self.filename


def read_named(text: str, sha256: str | None) -> WheelAddress | WheelFile:
    """What ``--wheel`` names: a file that is there, or an address, whose fragment may have the digest as pip's do.

    :raises UsageError: for what is neither, or a digest that is none.
    :raises IntegrityError: for a file with another digest.
    """
    if sha256 is not None and not _DIGEST.fullmatch(sha256):
        raise UsageError(f"'{sha256}' is not a SHA-256: expected 64 hexadecimal digits.", hint="sha256sum FILE.whl")
    digest = (sha256 or "").lower()
    if "://" not in text:
        return _named_file(Path(text), digest)
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https", "file"}:
        raise UsageError(f"'{text}' is no address that can be fetched: expected https://...")
    filename = unquote(parts.path).rpartition("/")[2]
    if not _FILENAME.fullmatch(filename):
        raise UsageError(f"{urldefragauth(text)} does not end with a wheel's file name: name-version-tags.whl.")
    if not digest and (match := _FRAGMENT.search(parts.fragment)):
        digest = match[1].lower()
    return WheelAddress(NAMED, filename, parts._replace(fragment="").geturl(), digest, 0)


def _named_file(path: Path, digest: str) -> WheelFile:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", hint="Name a wheel: --wheel FILE.whl, or its https address")
    found = sha256_file(path)
    if digest not in {"", found}:
        raise IntegrityError(
            f"{path} is not the expected file: its SHA-256 is {found}, expected {digest}.",
            hint="Fetch it again, or name the digest that its publisher gives: --sha256 DIGEST",
        )
    return WheelFile(NAMED, path, found, path.stat().st_size)


def require_digest(address: WheelAddress, *, accept_unverified: bool) -> None:
    """Stop before an address whose bytes nobody but its own server vouches for, whatever its source is called.

    :raises IntegrityError: for one without a digest, unless the user accepts that.
    """
    if not address.sha256 and not accept_unverified:
        raise IntegrityError(
            f"No SHA-256 is published for {address.filename}: what {address.shown} serves could not be verified.",
            hint="Add --accept-unverified to take what comes and pin its digest in flashdepot.lock, or "
            "--wheel URL --sha256 DIGEST if you know it.",
        )


def have_one(
    addresses: Sequence[WheelAddress], have: Callable[[WheelAddress], WheelFile], on_note: Note
) -> tuple[int, WheelFile]:
    """The first of some wheels that exists, with its number; the others are not asked for.

    :raises NotThereError: when none does.
    :raises NetworkError: when one cannot be had for another reason: another wheel is no answer to that.
    """
    *firsts, last = enumerate(addresses)
    for number, address in firsts:
        try:
            return number, have(address)
        except NotThereError as error:  # noqa: PERF203  (a loop of a few downloads)
            on_note(f"{error.message} The next best is tried.")
    return last[0], have(last[1])


def have_wheel(address: WheelAddress, downloads: Path, on_progress: Download, on_note: Note) -> WheelFile:
    """The wheel of an address, fetched unless it is there; kept by its digest for the next time.

    :raises IntegrityError: for other bytes than the expected ones.
    :raises NetworkError: when it cannot be had.
    """
    remote = Remote(address.url, address.sha256, address.size)
    place = address.place(downloads)
    _use(place.parent)
    done = fetch_url(remote, place, elsewhere=_ELSEWHERE, on_progress=on_progress, on_note=on_note)
    kept = replace(address, sha256=done.sha256).place(downloads)
    if kept != done.path:
        _use(kept.parent)
        done.path.replace(kept)
    return WheelFile(address.source, kept, done.sha256, done.size, address.shown)


def _use(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    keep(folder)
