"""What a builder states of a compiler run or a library, as in-toto statements, and where they are found.

Nothing in a statement depends on when or where it was made: two builders that got the same bytes state the same, and
sign one and the same payload. What says which statements stand has a version and a date, by the rules of TUF
(specification 1.0, 5.3 to 5.5), so that no older state is taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from flashdepot.depot.actions import ActionRecord, Output, action_key
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import IntegrityError, MissingToolError
from flashdepot.files.documents import parse_json
from flashdepot.files.trust import read_settings, write_settings
from flashdepot.model.codec import Digest, Natural, canonical_json, digest_of, read
from flashdepot.model.manifest import MANIFEST_NAME, Manifest, unusable
from flashdepot.model.recipe import UpstreamId
from flashdepot.model.request import Request
from flashdepot.model.target import Platform
from flashdepot.remotes.user_settings import UserSettings, today

LIFE = timedelta(days=180)
"""How long what was signed is trusted. The signer does so again when half of it has gone."""

CLOCK = "If the clock is wrong, set it."


class Edition(msgspec.Struct, frozen=True):
    """The version of what was signed, and the last day on which it is trusted."""

    version: Natural
    expires: date

    @classmethod
    def after(cls, *earlier: Edition | None) -> Edition:
        """The next one: versions are seconds of the clock, so that a place that is begun again continues, and grow in any case."""
        least = max((edition.version + 1 for edition in earlier if edition is not None), default=0)
        return cls(max(least, int(time.time())), today() + LIFE)

    @property
    def is_young(self) -> bool:
        """Whether it need not be signed again yet."""
        return self.expires - today() > LIFE / 2

    def outdated(self, place: str, settings: UserSettings) -> str:
        """Why it is not to be trusted, empty when it is; what is newer than all that was seen in a place is remembered."""
        if today() > self.expires:
            return f"it was signed to be trusted until {self.expires}, and this machine's clock says {today()}"
        seen = _seen(settings).get(place, 0)
        if self.version < seen:
            return f"it is an older state (version {self.version}) than this machine has seen there ({seen})"
        if self.version > seen:
            # A configuration that may not be written, as in a container: expiry is judged all the same.
            with contextlib.suppress(MissingToolError, OSError), settings.locked():
                known = _seen(settings)
                known[place] = max(self.version, known.get(place, 0))
                write_settings(settings.folder / "seen.json", known)
        return ""


def _seen(settings: UserSettings) -> dict[str, int]:
    return read_settings(settings.folder / "seen.json", dict[str, int])


_STATEMENT = "https://in-toto.io/Statement/v1"
_UNIT = "urn:flashdepot:unit:1"
_LIBRARY = "urn:flashdepot:library:1"
_INDEX = "urn:flashdepot:index:1"
_STATE = "urn:flashdepot:state:1"
_SOURCES = frozenset({".cu", ".cpp", ".cc", ".c", ".src"})

_P = TypeVar("_P")


class _Sha256(msgspec.Struct, frozen=True):
    sha256: Digest


class _Subject(msgspec.Struct, frozen=True):
    name: str
    digest: _Sha256


class _Statement(msgspec.Struct, frozen=True, rename={"kind": "_type", "predicate_type": "predicateType"}):
    kind: str
    subject: tuple[_Subject]
    predicate_type: str
    predicate: dict[str, Any]


def _file_statement(kind: str, name: str, digest: str, facts: Mapping[str, Any]) -> bytes:
    """The bytes that are signed of a file: its name and SHA-256, and what is stated of it."""
    subject = [{"name": name, "digest": {"sha256": digest}}]
    return canonical_json({"_type": _STATEMENT, "subject": subject, "predicateType": kind, "predicate": dict(facts)})


def _read(payload: bytes, kind: str, facts: type[_P]) -> tuple[str, str, _P]:
    """What a statement is about, name and digest, and its facts; :raises IntegrityError: when it is nothing of the kind."""
    try:
        found = read(parse_json(payload, "the statement"), _Statement)
        if (found.kind, found.predicate_type) != (_STATEMENT, kind):
            raise ValueError(f"it is not a statement of the kind {kind}")  # noqa: TRY301
        (subject,) = found.subject
        return subject.name, subject.digest.sha256, read(found.predicate, facts)
    except ValueError as error:
        raise IntegrityError(f"the statement cannot be used: {error}") from error


class _UnitFacts(msgspec.Struct, frozen=True):
    intent_key: Digest
    action_key: Digest
    size: Natural
    names: Digest
    sources: tuple[str, ...]


class UnitStatement(_UnitFacts, frozen=True):
    """A compiler run with this intent, of inputs that give this action key, made an object of this digest and size.

    ``names`` is the digest of the list of what it read, without digests; ``sources`` are the names that are not on it, so
    that units which read the same headers share one list.
    """

    name: str
    digest: str

    @classmethod
    def of(cls, record: ActionRecord) -> tuple[UnitStatement, bytes]:
        """What a record states, and the list of names that goes with it."""
        sources = tuple(sorted(name for name in record.inputs if PurePosixPath(name).suffix in _SOURCES))
        names = canonical_json(sorted(record.inputs.keys() - set(sources)))
        made, listed = record.object, hashlib.sha256(names).hexdigest()
        return cls(record.intent_key, record.action_key, made.size, listed, sources, record.name, made.digest), names

    @property
    def places(self) -> tuple[str, ...]:
        """Where a remote keeps it."""
        return (unit_place(self.intent_key),)

    @property
    def object(self) -> Output:
        """The object."""
        return Output(self.digest, self.size)

    def payload(self) -> bytes:
        """The bytes that are signed."""
        facts = {name: getattr(self, name) for name in _UnitFacts.__struct_fields__}
        return _file_statement(_UNIT, self.name, self.digest, facts)

    @classmethod
    def read(cls, payload: bytes) -> UnitStatement:
        """Read what :meth:`payload` gave; :raises IntegrityError: when it is nothing of the kind."""
        name, digest, facts = _read(payload, _UNIT, _UnitFacts)
        return cls(**asdict(facts), name=name, digest=digest)

    def inputs(self, names: bytes, current_digest: Callable[[str], str | None]) -> Mapping[str, str] | None:
        """The inputs that the run had, if what they are now gives the key that was signed; ``None`` otherwise."""
        try:
            listed = read(parse_json(names, "the list of inputs"), list[str])
        except ValueError:
            return None
        now = {name: digest for name in (*listed, *self.sources) if (digest := current_digest(name)) is not None}
        return now if action_key(self.intent_key, now) == self.action_key else None


class _LibraryFacts(msgspec.Struct, frozen=True):
    size: Natural
    manifest: dict[str, Any]


class LibraryStatement(msgspec.Struct, frozen=True):
    """A recipe gave a library: the SHA-256 and size of its manifest, and the manifest without ``actions``."""

    manifest_digest: str
    manifest_size: int
    summary: Manifest

    @classmethod
    def of(cls, manifest: Manifest) -> LibraryStatement:
        """What a manifest states."""
        text = manifest_text(manifest)
        return cls(hashlib.sha256(text).hexdigest(), len(text), replace(manifest, actions={}))

    @property
    def places(self) -> tuple[str, ...]:
        """Where a remote keeps it."""
        return library_places(self.summary)

    def payload(self) -> bytes:
        """The bytes that are signed."""
        facts = {"size": self.manifest_size, "manifest": self.summary.to_json()}
        return _file_statement(_LIBRARY, MANIFEST_NAME, self.manifest_digest, facts)

    @classmethod
    def read(cls, payload: bytes) -> LibraryStatement:
        """As :meth:`UnitStatement.read`."""
        _, digest, facts = _read(payload, _LIBRARY, _LibraryFacts)
        try:
            return cls(digest, facts.size, Manifest.from_json(facts.manifest))
        except ValueError as error:
            raise unusable("the statement", error) from error

    def manifest(self, text: bytes) -> Manifest:
        """The whole manifest; :raises IntegrityError: when the bytes are not those that were signed."""
        try:
            manifest = Manifest.from_json(parse_json(text, MANIFEST_NAME))
        except ValueError as error:
            raise unusable("the manifest", error) from error
        if LibraryStatement.of(manifest) != self:
            raise IntegrityError("the manifest is not the one that was signed")
        return manifest


class StateStatement(Edition, frozen=True):
    """Which libraries of a remote a key stands for: by the recipe, the SHA-256 of the statement that it signed last."""

    libraries: Mapping[str, str]

    def payload(self) -> bytes:
        """The bytes that are signed."""
        return _file_statement(_STATE, "libraries", digest_of(dict(self.libraries)), msgspec.to_builtins(self))

    @classmethod
    def read(cls, payload: bytes) -> StateStatement:
        """Read what :meth:`payload` gave; :raises IntegrityError: when it is nothing of the kind."""
        return _read(payload, _STATE, cls)[2]


class IndexStatement(msgspec.Struct, frozen=True):
    """That the list of our index has these bytes, as of an edition."""

    name: str
    digest: str
    edition: Edition

    def payload(self) -> bytes:
        """The bytes that are signed."""
        return _file_statement(_INDEX, self.name, self.digest, msgspec.to_builtins(self.edition))

    @classmethod
    def read(cls, payload: bytes) -> IndexStatement:
        """Read what :meth:`payload` gave; :raises IntegrityError: when it is nothing of the kind."""
        return cls(*_read(payload, _INDEX, Edition))


def state_place(key_id: str) -> str:
    """Where a remote keeps what a key stands for."""
    return f"signed/state/{key_id}.json"


def unit_place(intent_key: str) -> str:
    """Where a remote keeps the records of compiler runs with one intent."""
    return f"signed/units/{intent_key[:2]}/{intent_key}.json"


def recipe_place(recipe_key: str) -> str:
    """Where the library of a recipe is."""
    return f"signed/libraries/{recipe_key[:2]}/{recipe_key}.json"


def source_place(family: str, upstream: UpstreamId, platform: Platform, c_layer: str) -> str:
    """Where the libraries of one source for one platform are."""
    source = [family, upstream.version, upstream.digest]
    return recipe_place(digest_of({"source": source, "platform": str(platform), "c_layer": c_layer}))


def library_places(manifest: Manifest) -> tuple[str, ...]:
    """Where a remote keeps the record of a library: for who asks by source and platform, and for who knows its recipe."""
    sources = manifest.upstreams.items()
    found = (source_place(family, upstream, manifest.platform, manifest.c_layer) for family, upstream in sources)
    return (*found, recipe_place(manifest.recipe_key))


def request_place(request: Request) -> str:
    """Where the libraries that may serve a request are."""
    family = min(request.upstreams)
    return source_place(family, request.upstreams[family], request.platform, request.c_layer or "")


def blob_place(digest: str) -> str:
    """Where a remote keeps a blob: as in a depot."""
    return f"blobs/sha256/{digest[:2]}/{digest}"
