"""The wheel that is to be installed: a file or an address, the digest that is known of it, and having it."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace
from requests.utils import urldefragauth

from flashdepot.catalog.pages import Pages, PageToken
from flashdepot.catalog.published_files import read_github_releases
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.events import Download
from flashdepot.files.disk import sha256_file
from flashdepot.files.folders import touch
from flashdepot.net.download import Remote
from flashdepot.net.errors import Note, NotThereError
from flashdepot.net.fetch import fetch_url
from flashdepot.net.transport import read_index_settings
from flashdepot.resolve.lock import Lock, read_lock, write_lock


class WheelFile(msgspec.Struct, frozen=True):
    """Whose it is (``ours``, ``official``, ``community``, or ``named`` by the user), and what its bytes are.

    ``url`` is where it came from, empty for a file and for ours.
    """

    source: str
    path: Path
    sha256: str
    size: int
    url: str = ""


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
        return downloads / key[:16] / self.filename


def read_named(text: str, sha256: str | None) -> WheelAddress | WheelFile:
    """What ``--wheel`` names: a file that is there, or an address, whose fragment may have the digest as pip's do."""
    if sha256 is not None and not _DIGEST.fullmatch(sha256):
        raise UsageError(f"'{sha256}' is not a SHA-256: expected 64 hexadecimal digits.", hint="sha256sum FILE.whl")
    digest = (sha256 or "").lower()
    if "://" not in text:
        return _named_file(Path(text), digest)
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https", "file"}:
        raise UsageError(f"'{text}' is not an address that can be fetched: expected https://...")
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
    """Refuse an address whose digest nobody else has published."""
    if not address.sha256 and not accept_unverified:
        raise IntegrityError(
            f"No SHA-256 is known for {address.filename}: what {address.shown} sends cannot be verified.",
            hint="Add --accept-unverified to accept the file and pin its digest in flashdepot.lock, or name the digest if you "
            "know it: --wheel URL --sha256 DIGEST",
        )


def have_wheel(address: WheelAddress, downloads: Path, on_progress: Download, on_note: Note) -> WheelFile:
    """The wheel of an address, fetched unless it is there; kept by its digest for the next time."""
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
    touch(folder)


_DOWNLOAD = re.compile(r"/([\w.-]+)/([\w.-]+)/releases/download/([^/]+)/[^/]+", re.ASCII)


def ask_release(address: WheelAddress, folder: Path) -> WheelAddress:
    """The address with the size and digest that the record of its release has; itself where there is no such record.

    :param folder: keeps the records, so that GitHub is asked only what is new.
    :raises NotThereError: when that release has no such wheel, or there is no such release.
    """
    if address.sha256 or (url := _record_url(address.shown)) is None:
        return address
    server, secret = _servers()["https://github.com"], os.environ.get("GITHUB_TOKEN", "")
    token = PageToken(server, secret) if secret else None
    with Pages(url, folder, read_index_settings(), token=token) as pages:
        files = pages.read(lambda release: read_github_releases([release]))[0].files
    found = next((file for file in files if unquote(file.url) == unquote(address.shown)), None)
    if found is None:
        raise NotThereError(f"{url} has no {address.filename}: it was never published, or was taken away.")
    return replace(address, sha256=found.sha256, size=found.size, recorded_by=url if found.sha256 else "")


def _servers() -> dict[str, str]:
    """The API of each server of releases: github.com, and that of GitHub's own variables, as its runners set them."""
    own = {os.environ.get("GITHUB_SERVER_URL", ""): os.environ.get("GITHUB_API_URL", "")}
    return {"https://github.com": "https://api.github.com", **{s: a for s, a in own.items() if s and a}}


def _record_url(url: str) -> str | None:
    for server, api in _servers().items():
        if url.startswith(f"{server}/") and (match := _DOWNLOAD.fullmatch(url[len(server) :])):
            owner, project, tag = match.groups()
            return f"{api}/repos/{owner}/{project}/releases/tags/{tag}"
    return None


def pin(path: Path, lock: Lock | None, wheel: WheelFile) -> str:
    """Write the digest of an installed wheel into the lock file, when its lock has none yet.

    :param lock: what was locked, or what would be; ``None`` for a wheel that the user named.
    :returns: a sentence about what was recorded; empty when nothing had to be.
    """
    if lock is None or not lock.needs_digest:
        return ""
    if path.exists() and not _is_of(path, lock):
        return f"{path} pins another wheel and was left as it is; the SHA-256 of this one is {wheel.sha256}."
    write_lock(path, lock.with_digest(wheel.sha256, wheel.size))
    return f"Its SHA-256 is recorded in {path}: flashdepot install --locked takes no other bytes from now on."


def _is_of(path: Path, lock: Lock) -> bool:
    try:
        return read_lock(path).wheel.url == lock.wheel.url
    except UsageError:
        return False
