"""A package index of our wheels, as static files."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path

from flashdepot.api.libraries import open_depot
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.events import Events
from flashdepot.families import obtain_sources
from flashdepot.index import IndexSite, write_site
from flashdepot.index.simple import FILES
from flashdepot.model.own_wheel_name import wheel_name
from flashdepot.resolve.library import published_sources
from flashdepot.wheel import build_wheel

_SILENT = Events()


def index(
    folder: Path,
    wheels: Sequence[Path] = (),
    *,
    url: str = "",
    depot: Depot | None = None,
    events: Events = _SILENT,
) -> IndexSite:
    """A package index in a folder, from which pip and uv install: static files for any web server.

    It holds the wheels that are given, without any those of the depot's libraries, and what it held before. The time of
    what is new is now, or ``SOURCE_DATE_EPOCH``.

    Typical usage::

        site = api.index(Path("public"), url="https://wheels.example.org/")

    :param wheels: wheels that :func:`wheel` has written.
    :param url: the address that the folder will be served under, for the commands on its page.
    :raises UsageError: for a wheel that is not ours, or something of the user's in the folder; nothing has changed then.
    :raises IntegrityError: for a wheel of the index that is not as it was published; likewise.
    :raises IncompatibleError: when there is nothing to put there.
    """
    depot = depot or open_depot(events=events)
    with depot.workspace() as work:
        offered = wheels or _wheels_of_depot(depot, folder, work, events)
        return write_site(folder, offered, url=_base(url), now=_now(), work=work, on_note=events.warn)


def _wheels_of_depot(depot: Depot, folder: Path, work: Path, events: Events) -> list[Path]:
    """The wheel of each library of a published source, made unless the index has it."""
    found = []
    for manifest in depot.manifests():
        there = folder / FILES / wheel_name(manifest)
        if there.is_file():
            continue
        try:
            trees = obtain_sources(published_sources(manifest), depot.layout.upstreams)
            found.append(build_wheel(manifest, depot.materialise(manifest), trees, work / manifest.recipe_key).path)
        except FlashdepotError as error:
            events.warn(f"The library {manifest.recipe_key[:12]} is left out: {error.message}")
    return found


def _base(url: str) -> str:
    """The address with a slash at its end; :raises UsageError: for one that a browser does not open."""
    if not url:
        return ""
    if (
        not url.startswith(("https://", "http://"))
        or not url.isascii()
        or not url.isprintable()
        or {*" \"'<>`$\\"} & {*url}
    ):
        raise UsageError(f"'{url}' is not the address of a folder on the web: expected https://...")
    return f"{url.rstrip('/')}/"


def _now() -> str:
    """The time as PEP 700 spells it. ``SOURCE_DATE_EPOCH`` (reproducible-builds.org) has another in its place."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    utc = dt.timezone.utc
    now = dt.datetime.fromtimestamp(int(epoch), utc) if epoch.isdecimal() else dt.datetime.now(utc)
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"
