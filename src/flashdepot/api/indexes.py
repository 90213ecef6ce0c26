"""A package index of our wheels, as static files."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from flashdepot.api.libraries import open_depot
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.events import Events
from flashdepot.families import obtain_sources
from flashdepot.index import IndexSite, Seals, write_site
from flashdepot.index.simple import FILES
from flashdepot.model.index_record import IndexRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import wheel_name
from flashdepot.remotes import Remotes, users_remotes
from flashdepot.remotes.envelopes import Envelope
from flashdepot.remotes.fetch import take_library
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.signing import VARIABLE, choose_key, own_keys
from flashdepot.remotes.stock import stock
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.resolve.library import published_sources
from flashdepot.system.net import require_network
from flashdepot.wheel import build_wheel

_SILENT = Events()


def index(
    folder: Path,
    wheels: Sequence[Path] = (),
    *,
    url: str = "",
    source: str | None = None,
    remotes: Remotes | None = None,
    depot: Depot | None = None,
    events: Events = _SILENT,
) -> IndexSite:
    """A package index in a folder, from which pip and uv install: static files for any web server.

    It holds the wheels that are given, without any those of the depot's libraries or of a remote's, and what it held
    before. The time of what is new is now, or ``SOURCE_DATE_EPOCH``. It is signed with this user's key, if there is one,
    and has the signatures of the remote's libraries beside them.

    Typical usage::

        site = api.index(Path("public"), url="https://wheels.example.org/")

    :param wheels: wheels that :func:`wheel` has written.
    :param url: the address that the folder will be served under, for the commands on its page.
    :param source: the name of a remote, of which every library that is believed is taken; the depot keeps them.
    :raises NetworkError: when the remote cannot be read.
    :raises UsageError: for a wheel that is not ours, or something of the user's in the folder; nothing has changed then.
    :raises IntegrityError: for a wheel of the index that is not as it was published; likewise.
    :raises IncompatibleError: when there is nothing to put there.
    """
    depot = depot or open_depot(events=events)
    if wheels and source:
        raise UsageError("Wheels were named, and a remote: an index takes the one or the other in one run.")
    remote = (remotes or Remotes(users_remotes, events.warn)).named(source) if source else None
    if remote is not None and not remote.settings.is_local:
        require_network(f"Reading {remote.name}")
    with depot.workspace() as work:
        signed: dict[str, list[Envelope]] = {}
        if remote is not None:
            offered = _wheels_of(_libraries_of(remote, depot, folder, signed, events), depot, folder, work, events)
        else:
            offered = list(wheels) or _wheels_of(depot.manifests(), depot, folder, work, events)
        seals = _seals(remote, signed, events)
        return write_site(folder, offered, url=_base(url), now=_now(), work=work, seals=seals, on_note=events.warn)


def _libraries_of(
    remote: OpenRemote, depot: Depot, folder: Path, signed: dict[str, list[Envelope]], events: Events
) -> Iterator[Manifest]:
    """Every library of a remote, in the depot unless the index has its wheel; ``signed`` gets who has signed it."""
    for library in stock(remote, depot.manifests()):
        statement = library.statement
        signed.setdefault(statement.manifest_digest, []).append(library.envelope)
        try:
            manifest = remote.manifest(statement)
        except IntegrityError as error:
            events.warn(f"The library {statement.summary.recipe_key[:12]} is left out: {error.message}.")
            continue
        if (folder / FILES / wheel_name(manifest)).is_file() or take_library(remote, depot, statement, events):
            yield manifest


def _wheels_of(manifests: Iterable[Manifest], depot: Depot, folder: Path, work: Path, events: Events) -> list[Path]:
    """The wheel of each library of a published source, made unless the index has it."""
    found = []
    for manifest in manifests:
        if (folder / FILES / wheel_name(manifest)).is_file():
            continue
        try:
            trees = obtain_sources(published_sources(manifest), depot.layout.upstreams)
            found.append(build_wheel(manifest, depot.materialise(manifest), trees, work / manifest.recipe_key).path)
        except FlashdepotError as error:
            events.warn(f"The library {manifest.recipe_key[:12]} is left out: {error.message}")
    return found


def _seals(remote: OpenRemote | None, signed: Mapping[str, Sequence[Envelope]], events: Events) -> Seals:
    settings = UserSettings.of_this_user()
    trusted = [known.key for known in settings.trusted_keys() if known.revoked is None]
    known = [*trusted, *(remote.settings.keys if remote is not None else ())]
    key = None
    if own_keys(settings.private_keys) or os.environ.get(VARIABLE):
        key = choose_key(settings)
        known.append(key.public)
    else:
        events.note("There is no key to sign the index with. Make one: flashdepot keys new")
    names = {public.id: public for public in reversed(known)}
    return Seals(key, signed, tuple(names.values()))


def _base(url: str) -> str:
    """The address with a slash at its end; :raises UsageError: for one that a browser does not open."""
    if not url:
        return ""
    try:
        return IndexRecord((), f"{url.rstrip('/')}/").url
    except ValueError as error:
        raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def _now() -> str:
    """The time as PEP 700 spells it. ``SOURCE_DATE_EPOCH`` (reproducible-builds.org) has another in its place."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    utc = dt.timezone.utc
    now = dt.datetime.fromtimestamp(int(epoch), utc) if epoch.isdecimal() else dt.datetime.now(utc)
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"
