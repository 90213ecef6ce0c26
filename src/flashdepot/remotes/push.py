"""To a remote: first the blobs, then the records that name them, so that no record is ever without its blobs.

Records of units come before those of libraries: whoever sees a library there finds its units too.

A record that two push at the same moment may keep one of the two only, for a moment: each looks again, and puts its own
back. What is lost all the same is a miss for readers, and comes back with the next push.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.depot.artifacts import manifest_text
from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.events import Events
from flashdepot.model.manifest import Manifest
from flashdepot.model.quantities import size
from flashdepot.remotes.envelopes import LONGEST, Envelope, merge, read_envelopes, write_envelopes
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.signing import SigningKey, choose_key
from flashdepot.remotes.statements import LibraryStatement, UnitStatement, blob_place, library_places, unit_place
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.remotes.workers import each, within

_ROUNDS = 6
_PAUSE = (0.3, 0.9)
"""Seconds after which records are looked at again: longer than others take between reading one and writing it."""

_SECONDS = 60.0
_SLOWEST = 64 << 10
"""How long a push may take: so many seconds, and more for each so many bytes."""


class Pushed(msgspec.Struct, frozen=True):
    """How many libraries and units are there now, and what had to be sent: blobs, their bytes, and records."""

    libraries: int
    units: int
    blobs: int
    bytes: int
    records: int

    def __str__(self) -> str:
        sent = f"{self.blobs} blobs ({size(self.bytes)}) and {self.records} records sent"
        return f"{self.libraries} libraries and {self.units} units, {sent if self.records else 'all there already'}"


class _Parcel(msgspec.Struct, frozen=True):
    """What is to be there: the sources of blobs by digest, and the records of units and of libraries by place."""

    blobs: dict[str, Path | bytes]
    units: list[tuple[str, bytes]]
    libraries: list[tuple[str, bytes]]


def push(
    remote: OpenRemote, depot: Depot, manifests: Sequence[Manifest], events: Events, key: SigningKey | None = None
) -> Pushed:
    """Put libraries and the units behind them there, signed; what is there already is not sent again.

    :param key: what to sign with; this user's, or none where the remote takes unsigned records, when it is not given.
    :raises UsageError: when there is no key to sign with.
    :raises IntegrityError: when a library in the depot is damaged. Nothing is sent then.
    :raises NetworkError: when the remote cannot be written; no record is there then whose blobs are not.
    """
    key = key or _key_for(remote)
    parcel = _Parcel({}, [], [])
    units = 0
    for manifest in manifests:
        _add_library(parcel, depot, manifest)
        for record in _records(depot, manifest):
            _add_unit(parcel, depot, record)
            units += 1
    events.note(f"Pushing to {remote.name}: {len(parcel.blobs)} blobs, as far as they are not there.")
    longest = _SECONDS + sum(map(_length, parcel.blobs.values())) / _SLOWEST
    put = each(list(parcel.blobs.items()), lambda blob: _put_blob(remote, *blob), remote.name, seconds=longest)
    sent = [count for count in put if count is not None]
    records = sum(_put_records(remote, some, key, longest) for some in (parcel.units, parcel.libraries))
    return Pushed(len(manifests), units, len(sent), sum(sent), records)


def countersign(remote: OpenRemote, records: Sequence[ActionRecord], key: SigningKey) -> int:
    """Sign what a remote states of some compiler runs, where that is what these are; nothing else is sent.

    :returns: how many records have got the signature, that is, had not had it.
    :raises NetworkError: when the remote fails or cannot be written.
    """
    ours = [(unit_place(record.intent_key), UnitStatement.of(record)[0].payload()) for record in records]

    def is_there(place: str, payload: bytes) -> bool:
        return any(envelope.payload == payload for envelope in _found(remote, place))

    there = each(ours, lambda record: is_there(*record), remote.name, seconds=_SECONDS)
    stated = [record for record, same in zip(ours, there, strict=True) if same]
    return _put_records(remote, stated, key, _SECONDS)


def _key_for(remote: OpenRemote) -> SigningKey | None:
    folder = UserSettings.of_this_user().private_keys
    if remote.settings.unsigned:
        from flashdepot.errors import UsageError  # noqa: PLC0415

        try:
            return choose_key(folder, None)
        except UsageError:
            return None
    return choose_key(folder, None)


def _add_library(parcel: _Parcel, depot: Depot, manifest: Manifest) -> None:
    source = depot.libraries.source(manifest)
    for file in manifest.files:
        if not file.link:
            parcel.blobs[file.digest] = source(file)
    text = manifest_text(manifest)
    parcel.blobs[hashlib.sha256(text).hexdigest()] = text
    payload = LibraryStatement.of(manifest).payload()
    parcel.libraries.extend((place, payload) for place in library_places(manifest))


def _records(depot: Depot, manifest: Manifest) -> Iterable[ActionRecord]:
    """The compiler runs behind a library, as far as the depot has them still."""
    for key in manifest.actions.values():
        record = depot.actions.read(depot.layout.action(key))
        if record is not None and depot.blobs.find(record.object.digest) is not None:
            yield record


def _add_unit(parcel: _Parcel, depot: Depot, record: ActionRecord) -> None:
    statement, names = UnitStatement.of(record)
    parcel.blobs[record.object.digest] = depot.blobs.verified_path(record.object.digest)
    parcel.blobs[statement.names] = names
    parcel.units.append((unit_place(record.intent_key), statement.payload()))


def _put_blob(remote: OpenRemote, digest: str, source: Path | bytes) -> int | None:
    """Have a blob there; :returns: the bytes that were sent, ``None`` when it was there."""
    length = _length(source)
    place = blob_place(digest)
    if remote.store.size(place) == length:
        return None
    remote.store.write(place, source)
    return length


def _length(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _put_records(
    remote: OpenRemote, records: Sequence[tuple[str, bytes]], key: SigningKey | None, seconds: float
) -> int:
    """Have records there, and look again until nobody has replaced one; :returns: how many were not there.

    :raises NetworkError: when the remote cannot be written, or does not keep what is written.
    """
    written = list(records)
    count = 0
    for again in range(_ROUNDS):
        had_to = each(written, lambda record: _put_record(remote, *record, key), remote.name, seconds=seconds)
        written = [record for record, was_written in zip(written, had_to, strict=True) if was_written]
        if not again:
            count = len(written)
        if not written:
            return count
        time.sleep(random.uniform(*_PAUSE))  # noqa: S311  (no secret: so that two that push do not stay in step)
    raise NetworkError(
        f"{remote.settings.url}/{written[0][0]} does not keep what is written there, or others write it all the time",
        hint="Push again.",
    )


def _put_record(remote: OpenRemote, place: str, payload: bytes, key: SigningKey | None) -> bool:
    """Have a record there with our signature; :returns: whether it had to be written."""
    ours = Envelope(payload) if key is None else Envelope(payload).signed(key)
    merged = merge(_found(remote, place), ours, lambda envelope: remote.trust.refusal(envelope) is None)
    if merged is not None:
        remote.store.write(place, write_envelopes(merged))
    return merged is not None


def _found(remote: OpenRemote, place: str) -> list[Envelope]:
    """What is there already. A file that cannot be read is replaced."""
    try:
        data = within(remote.settings.timeout * 4, remote.name, lambda: remote.store.read(place, LONGEST))
        return [] if data is None else read_envelopes(data)
    except IntegrityError:
        return []
