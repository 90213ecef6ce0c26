"""Who has signed what an index holds: the envelopes that travel with it, and the names of their keys."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.index.held import HeldWheel
from flashdepot.model.public_key import PublicKey
from flashdepot.remotes.envelopes import Envelope
from flashdepot.remotes.freshness import Edition
from flashdepot.remotes.signing import SigningKey
from flashdepot.remotes.statements import IndexStatement, LibraryStatement, file_statement

WHEEL = "urn:flashdepot:wheel:1"


class Seals(msgspec.Struct, frozen=True):
    """What signs an index, and what others have signed of it.

    :param key: what to sign with, if there is a key.
    :param libraries: envelopes about libraries, by the digest of the manifest.
    :param known: the keys that names are known of.
    """

    key: SigningKey | None = None
    libraries: Mapping[str, Sequence[Envelope]] = {}
    known: Sequence[PublicKey] = ()

    def of_wheel(self, wheel: HeldWheel, earlier: Sequence[Envelope]) -> list[Envelope]:
        """The envelopes of a wheel: that it is what it is, and that its library is.

        :param earlier: those that the index has of it.
        """
        library = LibraryStatement.of(wheel.manifest)
        ours = self._signed(wheel_statement(wheel))
        found = [*ours, *self.libraries.get(library.manifest_digest, ()), *earlier]
        return _merged(found, {wheel_statement(wheel), library.payload()})

    def of_record(self, name: str, data: bytes, earlier: Sequence[Envelope]) -> list[Envelope]:
        """The envelopes of the index's own record: those of the same bytes stay, and ours is new when half its time is over."""
        digest = hashlib.sha256(data).hexdigest()
        editions: list[Edition] = []
        kept = []
        for envelope in earlier:
            with contextlib.suppress(IntegrityError):
                statement = IndexStatement.read(envelope.payload)
                editions.append(statement.edition)
                if (statement.name, statement.digest) == (name, digest) and envelope.signatures:
                    kept.append((statement, envelope))
        if self.key is None:
            return [envelope for _, envelope in kept]
        others = [envelope for _, envelope in kept if not envelope.is_signed_by(self.key.public)]
        mine = [(statement, envelope) for statement, envelope in kept if envelope not in others]
        young = [envelope for statement, envelope in mine if statement.edition.is_young]
        made = IndexStatement(name, digest, Edition.after(*editions))
        return [*(young or self._signed(made.payload())), *others]

    def signers(self, envelopes: Sequence[Envelope]) -> tuple[str, ...]:
        """The names of the known keys whose signatures are right."""
        known = {key.id: key for key in self.known}
        return tuple(
            sorted(
                {
                    known[key_id].name
                    for envelope in envelopes
                    for key_id, _ in envelope.signatures
                    if key_id in known and envelope.is_signed_by(known[key_id])
                }
            )
        )

    def _signed(self, payload: bytes) -> list[Envelope]:
        return [Envelope(payload).signed(self.key)] if self.key is not None else []


def wheel_statement(wheel: HeldWheel) -> bytes:
    """That a file of this name has these bytes, and which library is in it."""
    library = LibraryStatement.of(wheel.manifest).manifest_digest
    return file_statement(WHEEL, wheel.name, wheel.row.sha256, {"size": wheel.row.size, "manifest": library})


def _merged(envelopes: Sequence[Envelope], payloads: set[bytes]) -> list[Envelope]:
    """One envelope for each of some payloads, with every signature that there is of it."""
    found: dict[bytes, dict[str, str]] = {}
    for envelope in envelopes:
        if envelope.payload in payloads and envelope.signatures:
            found.setdefault(envelope.payload, {}).update(envelope.signatures)
    return [Envelope(payload, tuple(sorted(found[payload].items()))) for payload in sorted(found)]
