"""Fetching files with the user's network settings: from a package index by name, or from an address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError
from flashdepot.events import Download
from flashdepot.files.disk import sha256_file

if TYPE_CHECKING:
    from flashdepot.net.download import Downloaded, Remote
    from flashdepot.net.errors import Note


OFFLINE = "FLASHDEPOT_OFFLINE"
"""The environment variable that forbids the network; ``--offline`` sets it."""


def offline() -> bool:
    """Whether ``FLASHDEPOT_OFFLINE`` forbids the network."""
    return os.environ.get(OFFLINE, "") not in {"", "0"}


def require_network(what: str) -> None:
    """:raises NetworkError: when ``FLASHDEPOT_OFFLINE`` forbids the network, which ``what`` needs."""
    if offline():
        raise NetworkError(
            f"{what} needs the network, and --offline or {OFFLINE} forbids it.",
            hint=f"Run it once with the network: without --offline, and with {OFFLINE} unset",
        )


def fetch(project: str, filename: str, sha256: str, destination: Path, *, on_progress: Download | None = None) -> Path:
    """Download a file that a project has published, if ``destination`` has not these bytes, and return ``destination``.

    Of the indexes that the user's pip or uv settings name the first that serves the right bytes is taken.
    """
    if destination.is_file() and sha256_file(destination) == sha256:
        return destination
    require_network(f"Fetching {filename}")
    # Half a second of imports that a run without a download does not pay.
    from flashdepot.net.index import PackageIndex  # noqa: PLC0415
    from flashdepot.net.transport import read_index_settings  # noqa: PLC0415
    from flashdepot.process.run import trace  # noqa: PLC0415

    settings = read_index_settings()
    asked: list[str] = []
    failures: list[FlashdepotError] = []
    for url in settings.indexes:
        with PackageIndex(url, settings) as index:
            asked.append(index.url)
            try:
                trace(f"Looking for {filename} in {index.url}")
                if found := index.fetch(project, filename, sha256, destination, on_progress):
                    return found
            except (IntegrityError, NetworkError) as error:
                failures.append(error)
    if failures:
        # Wrong bytes are worse news than an index that is away.
        raise next((f for f in failures if isinstance(f, IntegrityError)), failures[0])
    raise NetworkError(
        f"No package index has {filename} of {project}: asked {', '.join(asked) or 'none'}.",
        hint="A mirror may lag or leave files out: name a full one with PIP_INDEX_URL=URL "
        "('pip config list' shows what is set).",
    )


def fetch_url(
    remote: Remote,
    destination: Path,
    *,
    elsewhere: str,
    on_progress: Download | None = None,
    on_note: Note = lambda _: None,
) -> Downloaded:
    """Download from an address, as :func:`flashdepot.net.download.download` does, with the user's pip settings.

    Credentials come from the address, from the user's indexes on the same server, or from ``.netrc``.
    """
    from flashdepot.net.download import already_there, download  # noqa: PLC0415  (as above)

    if there := already_there(remote, destination):
        return there
    require_network(f"Fetching {destination.name}")
    from flashdepot.net.transport import open_session, read_index_settings  # noqa: PLC0415
    from flashdepot.process.run import trace  # noqa: PLC0415

    trace(f"Fetching {remote.url}")
    settings = read_index_settings()
    with open_session(remote.url, settings, *filter(None, settings.indexes)) as session:
        return download(
            remote,
            destination,
            session,
            timeout=settings.timeout,
            elsewhere=elsewhere,
            on_progress=on_progress,
            on_note=on_note,
        )
