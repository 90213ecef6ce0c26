"""One remote as its reader sees it: records that are trusted, bytes that are what their digests say, and both put into a depot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from flashdepot.depot import Depot, choose
from flashdepot.depot.actions import ActionRecord, Output
from flashdepot.errors import FlashdepotError, IntegrityError
from flashdepot.events import Events
from flashdepot.files.disk import disk_errors, sha256_file
from flashdepot.fit.requests import unmet
from flashdepot.model.limits import size
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.remote import PublicKey
from flashdepot.model.request import Request
from flashdepot.net.waiting import Pace, each, within
from flashdepot.remotes.statements import (
    CLOCK,
    LibraryStatement,
    StateStatement,
    UnitStatement,
    blob_place,
    recipe_place,
    request_place,
    state_place,
    unit_place,
)
from flashdepot.remotes.stores import DeniedError, Store, open_store
from flashdepot.remotes.trust import LONGEST, Envelope, Refusal, Trust, read_envelopes
from flashdepot.remotes.user_settings import UserSettings

_S = TypeVar("_S", UnitStatement, LibraryStatement)

_LONGEST_MANIFEST = 8 << 20
_LONGEST_NAMES = 4 << 20
_SECONDS_PER_RECORD = 0.25
_PUSH_AGAIN = "Let its builder push again: flashdepot depot push"
_REPAIR = "Anyone who has it intact can repair it: flashdepot depot push --verify"


class OpenRemote:
    """One remote, for one run of the program. Once it has failed it is not asked again.

    :param warn: called with a sentence for all that is wrong with it, once each.
    """

    def __init__(self, trust: Trust, warn: Callable[[str], None]) -> None:
        self.settings = trust.remote
        self.trust = trust
        self._warn = warn
        self._warned: set[str] = set()
        self._store: Store | None = None
        self._names: dict[str, bytes] = {}
        self._states: dict[str, StateStatement | Refusal] = {}
        self.failure: FlashdepotError | None = None

    @property
    def name(self) -> str:
        """That of the settings."""
        return self.settings.name

    @property
    def store(self) -> Store:
        """Where its bytes are; :raises MissingToolError: when a package for it is not installed."""
        if self._store is None:
            self._store = open_store(self.settings)
        return self._store

    def stock(self, places: Sequence[str]) -> list[LibraryStatement]:
        """The libraries whose records are at some places, as far as they are trusted; raises as :class:`Store`."""
        rows = zip(places, self._many(places), strict=True)
        return [one for place, data in rows for one in self._trusted(data, place, LibraryStatement)]

    def units(self, intents: Collection[str]) -> Mapping[str, list[UnitStatement]]:
        """What it has of some compiler runs, as far as that is trusted; raises as :class:`Store`."""
        places = {key: unit_place(key) for key in sorted(intents)}
        rows = zip(places.items(), self._many([*places.values()]), strict=True)
        return {key: self._trusted(data, place, UnitStatement) for (key, place), data in rows}

    def names(self, statements: Sequence[UnitStatement]) -> None:
        """Have the lists of what some runs have read; raises as :class:`Store`."""
        wanted = sorted({statement.names for statement in statements} - self._names.keys())
        seconds = 4 * self.settings.timeout + _SECONDS_PER_RECORD * len(wanted)
        lists = each(wanted, lambda digest: self._small(digest, _LONGEST_NAMES), self.name, seconds=seconds)
        self._names.update((digest, data) for digest, data in zip(wanted, lists, strict=True) if data is not None)

    def manifest(self, statement: LibraryStatement) -> Manifest:
        """The whole manifest of a library; :raises IntegrityError: when it is not there, or not what was signed."""
        text = within(
            4 * self.settings.timeout, self.name, lambda: self._small(statement.manifest_digest, _LONGEST_MANIFEST)
        )
        if text is None:
            raise IntegrityError(f"the manifest {statement.manifest_digest[:12]} is not there")
        return statement.manifest(text)

    def fetch(self, blobs: Sequence[Output], depot: Depot, on_progress: Callable[[int], None]) -> None:
        """Put blobs that a depot lacks into it, each verified; what has arrived before an error is kept for the next time."""
        missing = [blob for blob in dict.fromkeys(blobs) if depot.blobs.find(blob.digest) is None]
        missing.sort(key=lambda blob: -blob.size)
        depot.layout.prepare()
        pace = Pace(on_progress)
        each(missing, lambda blob: self._fetch(blob, depot, pace), self.name, pace=pace)

    def fail(self, error: FlashdepotError) -> None:
        """Ask it nothing more in this run, and say why."""
        self.failure = error
        hint = f" {error.hint}" if error.hint else ""
        self.warn(f"The remote {self.name} is not used from here on: {error.message.rstrip('.')}.{hint}")

    def warn(self, text: str) -> None:
        """Say a thing, once."""
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _many(self, places: Sequence[str]) -> list[bytes | None]:
        """Several records, in order. Of a remote that does not answer to the first nothing more is asked."""
        if not places:
            return []
        seconds = self.settings.timeout + _SECONDS_PER_RECORD * len(places)
        first = within(self.settings.timeout, self.name, lambda: self._read(places[0]))
        return [first, *each(places[1:], self._read, self.name, seconds=seconds)]

    def _read(self, place: str) -> bytes | None:
        try:
            return self.store.read(place, LONGEST)
        except DeniedError as error:
            self.warn(f"The remote {self.name} does not say what it has: {error.message}. {error.hint}")
            return None

    def _trusted(self, data: bytes | None, place: str, kind: type[_S]) -> list[_S]:
        """The statements of a file that are signed as they must be, and are about the place where they are."""
        if data is None:
            return []
        try:
            envelopes = read_envelopes(data)
        except IntegrityError as error:
            self.warn(f"{self.settings.url}/{place} is not used: {error.message}.")
            return []
        found = []
        for envelope in envelopes:
            if refusal := self.trust.refusal(envelope):
                self.warn(f"Records of the remote {self.name} are not used: {refusal.reason}. {refusal.hint}")
                continue
            try:
                statement = kind.read(envelope.payload)
                if place not in statement.places:
                    raise IntegrityError("it is about something else")  # noqa: TRY301
            except IntegrityError as error:
                self.warn(f"A record of {self.settings.url}/{place} is not used: {error.message}.")
                continue
            if isinstance(statement, LibraryStatement) and (refusal := self._outdated(statement, envelope)):
                self.warn(f"A library of the remote {self.name} is not used: {refusal.reason}. {refusal.hint}")
                continue
            found.append(statement)
        return found

    def _outdated(self, statement: LibraryStatement, envelope: Envelope) -> Refusal | None:
        """Why too few of those who signed a library stand for it now. The keys of units hold all that they were made of."""
        signed, recipe = hashlib.sha256(envelope.payload).hexdigest(), statement.summary.recipe_key

        def outdated(key: PublicKey) -> Refusal | None:
            state = self._state(key)
            if isinstance(state, Refusal):
                return state
            if state.libraries.get(recipe) == signed:
                return None
            return Refusal(
                f"{key.name} does not stand for {recipe[:12]} any more, or an older state is shown", _PUSH_AGAIN
            )

        return self.trust.refusal(envelope, outdated)

    def _state(self, key: PublicKey) -> StateStatement | Refusal:
        """What a key stands for now, or why that cannot be determined; asked once."""
        if key.id not in self._states:
            self._states[key.id] = self._read_state(key)
        return self._states[key.id]

    def _read_state(self, key: PublicKey) -> StateStatement | Refusal:
        place = state_place(key.id)
        data = within(self.settings.timeout, self.name, lambda: self._read(place))
        try:
            envelopes = read_envelopes(data) if data is not None else []
            signed = [StateStatement.read(envelope.payload) for envelope in envelopes if envelope.is_signed_by(key)]
        except IntegrityError as error:
            return Refusal(f"{place} cannot be used: {error.message}", _PUSH_AGAIN)
        if not signed:
            return Refusal(f"there is nothing signed by {key.name} that says what it stands for now", _PUSH_AGAIN)
        state = max(signed, key=lambda one: one.version)
        if why := state.outdated(f"{self.settings.url} {key.id}", UserSettings.of_this_user()):
            return Refusal(f"of what {key.name} has signed: {why}", f"{_PUSH_AGAIN}. {CLOCK}")
        return state

    def _small(self, digest: str, longest: int) -> bytes | None:
        data = self.store.read(blob_place(digest), longest)
        if data is not None and hashlib.sha256(data).hexdigest() != digest:
            raise IntegrityError(f"{self.settings.url}/{blob_place(digest)} holds other bytes than its name says")
        return data

    def _fetch(self, blob: Output, depot: Depot, pace: Pace) -> None:
        with depot.lock(f"blob-{blob.digest}"), disk_errors(depot.root):
            if depot.blobs.find(blob.digest) is not None:
                return
            part = depot.layout.downloads / f"blob-{blob.digest}"
            part.parent.mkdir(parents=True, exist_ok=True)
            if part.is_symlink():
                part.unlink()
            resumed = part.exists()
            place = f"{self.settings.url}/{blob_place(blob.digest)}"
            try:
                self.store.fetch(blob_place(blob.digest), part, blob.size, pace.received)
                if resumed and sha256_file(part) != blob.digest:
                    # What was there before may have been the wrong beginning.
                    part.unlink()
                    self.store.fetch(blob_place(blob.digest), part, blob.size, pace.received)
                if (actual := sha256_file(part)) != blob.digest:
                    raise IntegrityError(f"{place} holds other bytes than its name says ({actual[:12]})")  # noqa: TRY301
            except FileNotFoundError:
                raise IntegrityError(f"{place} is not there") from None
            except IntegrityError:
                part.unlink(missing_ok=True)
                raise
            depot.blobs.put_file(part)
            part.unlink(missing_ok=True)

    def offers(self, request: Request) -> list[LibraryStatement]:
        """The libraries that serve a request, the best first; raises as :class:`Store`."""
        stock = self.stock([request_place(request)])
        left = [statement for statement in stock if statement.summary.kind == LIBRARY]
        found = []
        while taken := choose(request, (statement.summary for statement in left)).taken:
            best = next(statement for statement in left if statement.summary is taken)
            found.append(best)
            left.remove(best)
        return found

    def fetch_library(self, depot: Depot, request: Request, events: Events) -> Manifest | None:
        """Put the best library that serves a request into the depot; ``None`` when it has none."""
        for statement in self.offers(request):
            if (manifest := self.take_library(depot, statement, events)) and not unmet(request, manifest):
                return manifest
        return None

    def fetch_recipe(self, depot: Depot, recipe_key: str, events: Events) -> Manifest | None:
        """Put the library of a recipe into the depot; ``None`` when it does not have it, or not whole."""
        stock = self.stock([recipe_place(recipe_key)])
        return next(filter(None, (self.take_library(depot, statement, events) for statement in stock)), None)

    def take_library(self, depot: Depot, statement: LibraryStatement, events: Events) -> Manifest | None:
        """Put one library into the depot; ``None``, with a warning, when it lacks a part or a part is wrong."""
        try:
            manifest = self.manifest(statement)
            blobs = [Output(file.digest, file.size) for file in manifest.files if not file.link]
            total = sum(blob.size for blob in dict.fromkeys(blobs))
            with events.download(f"{manifest.recipe_key[:12]} from {self.name}") as progress:
                self.fetch(blobs, depot, lambda done: progress(done, total) if done else None)
            depot.artifacts.adopt(manifest)
        except IntegrityError as error:
            self.warn(
                f"The library {statement.summary.recipe_key[:12]} of {self.name} is not used: {error.message}. {_REPAIR}"
            )
            return None
        return manifest

    def fetch_units(
        self, depot: Depot, wanted: set[str], current_digest: Callable[[str], str | None], note: Callable[[str], None]
    ) -> None:
        """Put what it has of some compiler runs into the depot, and take their intents out of ``wanted``."""
        known = self.units(wanted)
        self.names([statement for statements in known.values() for statement in statements])
        records = [record for statements in known.values() if (record := self._unchanged(statements, current_digest))]
        if not records:
            return
        total = sum(record.object.size for record in records)
        note(f"Fetching {len(records)} of {len(wanted)} compilations from {self.name}, {size(total)}.")
        try:
            self.fetch([record.object for record in records], depot, lambda _done: None)
        except IntegrityError as error:
            self.warn(f"{self.name}: {error.message}. What it was for is compiled. {_REPAIR}")
        for record in records:
            if (path := depot.blobs.find(record.object.digest)) is not None:
                depot.actions.record(record, path)
                wanted.discard(record.intent_key)

    def _unchanged(
        self, statements: list[UnitStatement], current_digest: Callable[[str], str | None]
    ) -> ActionRecord | None:
        """The first run of inputs that are now what they were then."""
        for statement in statements:
            names = self._names.get(statement.names)
            try:
                inputs = None if names is None else statement.inputs(names, current_digest)
            except IntegrityError:
                continue
            if inputs is not None:
                return ActionRecord(
                    action_key=statement.action_key,
                    intent_key=statement.intent_key,
                    name=statement.name,
                    inputs=inputs,
                    cpu_seconds=0,
                    wall_seconds=0,
                    peak_rss=0,
                    outputs={"object": statement.object},
                )
        return None
