"""What a release page itself records of a wheel: GitHub names the SHA-256 of each asset that was uploaded since June 2025."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from msgspec.structs import replace

from flashdepot.catalog.pages import Pages, PageToken
from flashdepot.catalog.published_files import read_github_releases
from flashdepot.install.sources import WheelAddress
from flashdepot.system.index_settings import read_index_settings
from flashdepot.system.network_errors import NotThereError

_DOWNLOAD = re.compile(r"/([\w.-]+)/([\w.-]+)/releases/download/([^/]+)/[^/]+", re.ASCII)


def ask_release(address: WheelAddress, folder: Path) -> WheelAddress:
    """The address with the size and digest that the record of its release has; itself where there is no such record.

    :param folder: keeps the records, so that GitHub is asked only what is new.
    :raises NotThereError: when that release has no such wheel, or there is no such release.
    :raises NetworkError: when the record cannot be had.
    """
    if address.sha256 or (url := _record_url(address.shown)) is None:
        return address
    server, secret = _servers()["https://github.com"], os.environ.get("GITHUB_TOKEN", "")
    token = PageToken(server, secret) if secret else None
    with Pages(url, folder, read_index_settings(), token=token) as pages:
        files = pages.read(lambda release: read_github_releases([release])).page.files
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
