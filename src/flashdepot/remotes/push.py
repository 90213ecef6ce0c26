"""Put libraries and their units into a remote, signed.

First go the blobs, then the records that name them, so that no record is ever without its blobs.
Records of units come before those of libraries: anyone who sees a library there finds its units too.

A record that two push at the same moment may keep one of the two only, for a moment: each looks again, and puts its own
back. What is still lost is a miss for readers, and comes back with the next push.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import IntegrityError, NetworkError, UsageError
from flashdepot.events import Events
from flashdepot.model.limits import counted, size
from flashdepot.model.manifest import Manifest
from flashdepot.net.waiting import each, within
from flashdepot.remotes.keys import SigningKey, choose_key
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.statements import (
    Edition,
    LibraryStatement,
    StateStatement,
    UnitStatement,
    blob_place,
    library_places,
    state_place,
    unit_place,
)
from flashdepot.remotes.trust import LONGEST, Envelope, merge, read_envelopes, write_envelopes
from flashdepot.remotes.user_settings import UserSettings

_ROUNDS = 6
_PAUSE = (0.3, 0.9)
"""Seconds after which records are checked again: longer than others take between reading one and writing it."""

_SECONDS = 60.0
_SLOWEST = 64 << 10
"""How long a push may take: so many seconds, and more for each so many bytes."""


_Source = tuple[str, "Path | bytes"]
"""A blob: its digest, and where its bytes are."""


class Pushed(msgspec.Struct, frozen=True):
    """How many libraries and units are there now, and what was sent: blobs, ``repaired`` ones among them, bytes, records.

    Of a push that is only ``planned``: what would be.
    """

    libraries: int
    units: int
    blobs: int
    bytes: int
    records: int
    repaired: int = 0
    planned: bool = False

    def __str__(self) -> str:
        sent = f"{counted(self.blobs, 'blob')} ({size(self.bytes)}) and {counted(self.records, 'record')} "
        sent += "to send" if self.planned else "sent"
        repaired, done = counted(self.repaired, "blob"), "would be" if self.planned else "were"
        repaired = f", {repaired} had other bytes there and {done} repaired" if self.repaired else ""
        said = sent if self.records or self.blobs else "all there already"
        return f"{counted(self.libraries, 'library')} and {counted(self.units, 'unit')}, {said}{repaired}"


def push(
    remote: OpenRemote,
    depot: Depot,
    manifests: Sequence[Manifest],
    events: Events,
    key: SigningKey | None = None,
    *,
    verify: bool = False,
    dry_run: bool = False,
) -> Pushed:
    """Put libraries and their units there, signed; what is there already is not sent again.

    :param key: what to sign with; this user's, or none where the remote takes unsigned records, when it is not given.
    :param verify: read every blob that is there, and write those again that have other bytes.
    :param dry_run: only compare.
    :raises UsageError: when there is no key; :raises IntegrityError: when a library is damaged. Nothing is sent then.
    :raises NetworkError: when the remote cannot be written; no record is there then whose blobs are not.
    """
    try:
        key = key or choose_key(UserSettings.of_this_user())
    except UsageError:
        if not remote.settings.unsigned:
            raise
    sources: dict[str, Path | bytes] = {}
    units: list[tuple[str, bytes]] = []
    libraries: list[tuple[str, bytes]] = []
    stands: dict[str, str] = {}
    for manifest in manifests:
        source, stated = depot.libraries.source(manifest), LibraryStatement.of(manifest)
        sources |= {file.digest: source(file) for file in manifest.files if not file.link}
        sources[stated.manifest_digest] = manifest_text(manifest)
        payload = stated.payload()
        stands[manifest.recipe_key] = hashlib.sha256(payload).hexdigest()
        libraries += [(place, payload) for place in library_places(manifest)]
        for record in _records(depot, manifest):
            unit, names = UnitStatement.of(record)
            sources |= {record.object.digest: depot.blobs.verified_path(record.object.digest), unit.names: names}
            units.append((unit_place(record.intent_key), unit.payload()))
    if not dry_run:
        events.note(f"Pushing to {remote.name}: {counted(len(sources), 'blob')}, unless it is there already.")
    longest = _SECONDS + sum(map(_length, sources.values())) / _SLOWEST

    def is_missing(blob: _Source) -> bool:  # as far as its size says
        return remote.store.size(blob_place(blob[0])) != _length(blob[1])

    def is_wrong(blob: _Source) -> bool:
        return remote.store.digest(blob_place(blob[0]), _length(blob[1])) != blob[0]

    def is_new(record: tuple[str, bytes]) -> bool:
        return _merged(remote, *record, key) is not None

    def put(blob: _Source) -> int:
        remote.store.write(blob_place(blob[0]), blob[1])
        return _length(blob[1])

    blobs = list(sources.items())
    missing = list(compress(blobs, each(blobs, is_missing, remote.name, seconds=longest)))
    there = [blob for blob in blobs if blob not in missing]
    wrong = list(compress(there, each(there, is_wrong, remote.name, seconds=longest))) if verify else []
    if dry_run:
        records = sum(each([*units, *libraries], is_new, remote.name, seconds=longest))
        lengths = [_length(source) for _, source in (*missing, *wrong)]
        return Pushed(len(manifests), len(units), len(lengths), sum(lengths), records, len(wrong), planned=True)
    sent = each([*missing, *wrong], put, remote.name, seconds=longest)
    records = _put_records(remote, units, key, longest)
    # Before the libraries, and again if another machine with this key has written its own meanwhile.
    _put_state(remote, stands, key)
    records += _put_records(remote, libraries, key, longest)
    _put_state(remote, stands, key)
    return Pushed(len(manifests), len(units), len(sent), sum(sent), records, len(wrong))


def countersign(remote: OpenRemote, records: Sequence[ActionRecord], key: SigningKey) -> int:
    """Sign what a remote states of some compiler runs, where that is what these are; :returns: how many were not signed."""
    ours = [(unit_place(record.intent_key), UnitStatement.of(record)[0].payload()) for record in records]

    def is_there(record: tuple[str, bytes]) -> bool:
        return any(envelope.payload == record[1] for envelope in _found(remote, record[0]))

    there = each(ours, is_there, remote.name, seconds=_SECONDS)
    return _put_records(remote, list(compress(ours, there)), key, _SECONDS)


def _records(depot: Depot, manifest: Manifest) -> Iterable[ActionRecord]:
    """The compiler runs of a library that the depot still has."""
    for key in manifest.actions.values():
        record = depot.actions.read(depot.layout.action(key))
        if record is not None and depot.blobs.find(record.object.digest) is not None:
            yield record


def _length(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _put_records(
    remote: OpenRemote, records: Sequence[tuple[str, bytes]], key: SigningKey | None, seconds: float
) -> int:
    """Have records there, and look again until nobody has replaced one; :returns: how many were not there."""
    written = list(records)
    count = 0
    for again in range(_ROUNDS):
        had_to = each(written, lambda record: _put_record(remote, *record, key), remote.name, seconds=seconds)
        written = list(compress(written, had_to))
        if not again:
            count = len(written)
        if not written:
            return count
        time.sleep(random.uniform(*_PAUSE))  # noqa: S311  (no secret: so that two that push do not stay in step)
    raise NetworkError(
        f"{remote.settings.url}/{written[0][0]} does not keep what is written there, or others write it all the time",
        hint="Push again.",
    )


def _put_state(remote: OpenRemote, stands: Mapping[str, str], key: SigningKey | None) -> None:
    """Record there which libraries a key stands for, in addition to those before; renewed at half its time."""
    if key is None or not stands:
        return
    place = state_place(key.public.id)
    for again in range(_ROUNDS):
        states = []
        for envelope in _found(remote, place):
            with contextlib.suppress(IntegrityError):
                if envelope.is_signed_by(key.public):
                    states.append(StateStatement.read(envelope.payload))
        state = max(states, key=lambda one: one.version, default=None)
        known = dict(state.libraries) if state is not None else {}
        if state is not None and state.is_young and known == {**known, **stands}:
            return
        if again:
            time.sleep(random.uniform(*_PAUSE))  # noqa: S311  (as below)
        made = StateStatement(**asdict(Edition.after(state)), libraries=dict(sorted({**known, **stands}.items())))
        remote.store.write(place, write_envelopes([Envelope(made.payload()).signed(key)]))
    raise NetworkError(f"{remote.settings.url}/{place} does not keep what is written there", hint="Push again.")


def _put_record(remote: OpenRemote, place: str, payload: bytes, key: SigningKey | None) -> bool:
    """Have a record there with our signature; :returns: whether it had to be written."""
    merged = _merged(remote, place, payload, key)
    if merged is not None:
        remote.store.write(place, write_envelopes(merged))
    return merged is not None


def _merged(remote: OpenRemote, place: str, payload: bytes, key: SigningKey | None) -> list[Envelope] | None:
    """What a file there should hold with our signature; ``None`` where it does."""
    ours = Envelope(payload) if key is None else Envelope(payload).signed(key)
    return merge(_found(remote, place), ours, lambda found: remote.trust.refusal(found) is None)


def _found(remote: OpenRemote, place: str) -> list[Envelope]:
    """What is there already. A file that cannot be read is replaced."""
    try:
        data = within(remote.settings.timeout * 4, remote.name, lambda: remote.store.read(place, LONGEST))
        return [] if data is None else read_envelopes(data)
    except IntegrityError:
        return []
