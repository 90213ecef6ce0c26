"""Signed statements, as DSSE envelopes, several in one small file of a remote, and which are believed.

That depends on who has signed one, and whether this user trusts them today.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.files.atomic import parse_json
from flashdepot.model.codec import Table, canonical_json
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.remotes.statements import IndexStatement
from flashdepot.remotes.user_settings import UserSettings, today

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope as Dsse

    from flashdepot.remotes.keys import SigningKey


PAYLOAD_TYPE = "application/vnd.in-toto+json"
ENDING = ".signed.json"
"""What the name of a file ends with that has the envelopes of the file before it."""

LONGEST = 2 << 20
"""Bytes of a file of envelopes that are read at most."""

_SCHEMA = 1
_MOST = 32
"""Envelopes in one file: so many states of a unit's sources, or libraries of one source, are remembered."""

_MOST_SIGNATURES = 64


class Envelope(msgspec.Struct, frozen=True):
    """A payload, and its signatures in hexadecimal by the id of the key that made them."""

    payload: bytes
    signatures: tuple[tuple[str, str], ...] = ()

    def signed(self, key: SigningKey) -> Envelope:
        """This envelope with one more signature."""
        signature = key.signer.sign(self._dsse("").pae())
        others = [pair for pair in self.signatures if pair[0] != signature.keyid]
        return Envelope(self.payload, (*others, (signature.keyid, signature.signature)))

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether the payload is what the owner of a key signed."""
        from securesystemslib.exceptions import UnverifiedSignatureError  # noqa: PLC0415  (a remote that is dead needs none of it)
        from securesystemslib.signer import SSlibKey  # noqa: PLC0415

        known = SSlibKey(key.id, "ed25519", "ed25519", {"public": key.public})
        try:
            self._dsse(key.id).verify([known], 1)
        except UnverifiedSignatureError:
            return False
        return True

    def _dsse(self, key_id: str) -> Dsse:
        """The envelope with the signature of one key only."""
        from securesystemslib.dsse import Envelope as Dsse  # noqa: PLC0415
        from securesystemslib.signer import Signature  # noqa: PLC0415

        return Dsse(
            self.payload,
            PAYLOAD_TYPE,
            {key: Signature(key, value) for key, value in self.signatures if key == key_id},
        )


def write_envelopes(envelopes: Sequence[Envelope]) -> bytes:
    """The file of some envelopes: the first ones, as many as there may be."""
    rows = [_to_json(envelope) for envelope in envelopes[:_MOST]]
    return canonical_json({"schema": _SCHEMA, "records": rows})


def read_envelopes(data: bytes) -> list[Envelope]:
    """Read what :func:`write_envelopes` wrote; :raises IntegrityError: when it is nothing of the kind."""
    try:
        row = Table(parse_json(data, "the record"))
        if (schema := row.take("schema", int)) != _SCHEMA:
            raise ValueError(f"its schema is {schema}, and this flashdepot reads {_SCHEMA}")  # noqa: TRY301
        return [_read(envelope) for envelope in row.tables("records")[:_MOST] if _is_plausible(envelope)]
    except ValueError as error:
        raise IntegrityError(f"the record is damaged: {error}") from error


def merge(found: Sequence[Envelope], ours: Envelope, is_believed: Callable[[Envelope], bool]) -> list[Envelope] | None:
    """The envelopes that a file should hold: ours first, with the signatures that its payload has already.

    Those that are not believed come last, so that nobody crowds out what others trust. ``None`` when all of ours is there.
    """
    same = next((envelope for envelope in found if envelope.payload == ours.payload), None)
    if same is not None and set(ours.signatures) <= set(same.signatures):
        return None
    whole = ours if same is None else Envelope(ours.payload, tuple(dict((*same.signatures, *ours.signatures)).items()))
    others = [envelope for envelope in found if envelope.payload != ours.payload]
    return [whole, *sorted(others, key=lambda envelope: not is_believed(envelope))]


def _to_json(envelope: Envelope) -> dict[str, object]:
    signatures = [
        {"keyid": key, "sig": base64.b64encode(bytes.fromhex(value)).decode()} for key, value in envelope.signatures
    ]
    return {
        "payload": base64.b64encode(envelope.payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": signatures,
    }


def _is_plausible(row: Table) -> bool:
    """One with more signatures than there are builders was made to cost time: it counts as not there."""
    signatures = row.get("signatures")
    return not isinstance(signatures, list) or len(signatures) <= _MOST_SIGNATURES


def _read(row: Table) -> Envelope:
    if (kind := row.take("payloadType", str)) != PAYLOAD_TYPE:
        raise ValueError(f"its payload is {json.dumps(kind)[:80]}")
    signatures = {
        signature.take("keyid", str): _decoded(signature, "sig").hex() for signature in row.tables("signatures")
    }
    return Envelope(_decoded(row, "payload"), tuple(signatures.items()))


def _decoded(row: Table, key: str) -> bytes:
    try:
        return base64.b64decode(row.take(key, str), validate=True)
    except (binascii.Error, ValueError):
        raise row.wrong(key, "Base64") from None


_SHOWN = 12


class Refusal(msgspec.Struct, frozen=True):
    """Why a record is not believed, and what the reader can do."""

    reason: str
    hint: str


class Trust(msgspec.Struct, frozen=True):
    """What one reader believes of one remote on one day."""

    remote: RemoteSettings
    keys: Sequence[TrustedKey]
    today: date

    def refusal(
        self, envelope: Envelope, outdated: Callable[[PublicKey], Refusal | None] = lambda _: None
    ) -> Refusal | None:
        """Why a record is not to be believed; ``None`` when it is.

        :param outdated: why a key does not stand for the record any more, where that can be told.
        """
        if self.remote.unsigned:
            return None
        if not envelope.signatures:
            return Refusal(
                "nobody has signed it",
                f"Let its builder sign it ('flashdepot keys new', then 'flashdepot depot push'). If you trust all who may "
                f"write to {self.remote.name}: flashdepot remote add {self.remote.name} {self.remote.url} --unsigned",
            )
        signers: set[str] = set()
        against: list[Refusal] = []
        for key_id, _ in envelope.signatures:
            refused = self._against(key_id, envelope, outdated)
            if refused is None:
                signers.add(key_id)
            else:
                against.append(refused)
        if len({_owner(known.key.name) for known in self.keys if known.key.id in signers}) >= self.remote.builders:
            return None
        if signers:
            names = ", ".join(sorted(known.key.name for known in self.keys if known.key.id in signers))
            return Refusal(
                f"{self.remote.builders} builders must have signed it, and of those that you trust only {names} has",
                "Wait until another builder has pushed the same bytes.",
            )
        return against[0]

    def signers(self, envelope: Envelope) -> tuple[str, ...]:
        """The names of the believed keys that have signed a record."""
        believed = {key_id for key_id, _ in envelope.signatures if self._against(key_id, envelope) is None}
        return tuple(sorted(known.key.name for known in self.keys if known.key.id in believed))

    def _against(
        self, key_id: str, envelope: Envelope, outdated: Callable[[PublicKey], Refusal | None] = lambda _: None
    ) -> Refusal | None:
        """Why one signature counts for nothing."""
        known = _usable(key_id, self.keys, self.today)
        if isinstance(known, Refusal):
            return known
        return (
            _unless_limited(known, self.remote.name)
            or _unless_signed(envelope, known, self.remote.url)
            or outdated(known.key)
        )


def refusal_of_index(
    address: str, name: str, data: bytes, envelopes: Sequence[Envelope], settings: UserSettings
) -> Refusal | None:
    """Why the list of an index is not to be believed, ``None`` when a key of this user has signed it, and lately.

    :param name: of the file with the list, whose bytes are ``data``.
    :raises UsageError: when what this user trusts, or has seen, cannot be read.
    """
    statements = [(envelope, _index_statement(envelope)) for envelope in envelopes]
    expected = (name, hashlib.sha256(data).hexdigest())
    ours = [
        (envelope, statement, key_id)
        for envelope, statement in statements
        if statement is not None and (statement.name, statement.digest) == expected
        for key_id, _ in envelope.signatures
    ]
    if not ours and envelopes:
        return Refusal("it was changed after it was signed", f"Find out who may write to {address}.")
    if not ours:
        return Refusal(
            "nobody has signed it",
            "Let its publisher sign it ('flashdepot keys new', then 'flashdepot index' again). pip and uv install from it "
            "without that, verified by the SHA-256 that it names.",
        )
    keys, against = settings.trusted_keys(), []
    for envelope, statement, key_id in sorted(ours, key=lambda one: -one[1].edition.version):
        known = _usable(key_id, keys, today())
        refused = (
            known
            if isinstance(known, Refusal)
            else _unless_limited(known, address) or _unless_signed(envelope, known, address)
        )
        if refused is None and (why := statement.edition.outdated(address, settings)):
            refused = Refusal(
                why, "Let its publisher sign it again: 'flashdepot index' with the same folder, and upload it."
            )
        if refused is None:
            return None
        against.append(refused)
    return against[0]


def _index_statement(envelope: Envelope) -> IndexStatement | None:
    try:
        return IndexStatement.read(envelope.payload)
    except IntegrityError:
        return None


def _owner(name: str) -> str:
    """Whose key it is: one that was replaced, and the one in its place, are one builder's."""
    return re.sub(r"-until-\d{4}-\d\d-\d\d$", "", name)[:50]


def _usable(key_id: str, keys: Sequence[TrustedKey], today: date) -> TrustedKey | Refusal:
    """The trusted key of an id, or why its signatures count for nothing."""
    known = next((trusted for trusted in keys if trusted.key.id == key_id), None)
    if known is None:
        return Refusal(
            f"it is signed by a key that you do not trust ({key_id[:_SHOWN]})",
            "Ask its owner for the line of 'flashdepot keys ls', over a way that you trust: "
            "flashdepot keys trust NAME:BASE64",
        )
    name = known.key.name
    if known.revoked is not None:
        return Refusal(f"the key {name} was revoked on {known.revoked}", "Let it be signed by another key.")
    if known.expires is not None and today > known.expires:
        return Refusal(
            f"the key {name} expired on {known.expires}, and this machine's clock says {today}",
            f"Get the new key of {name}: flashdepot keys trust NAME:BASE64. If the clock is wrong, set it.",
        )
    return known


def _unless_limited(known: TrustedKey, name: str) -> Refusal | None:
    """:param name: of a remote, or the address of an index."""
    if not known.remotes or name in known.remotes:
        return None
    only = " ".join(f"--remote {remote}" for remote in (*known.remotes, name))
    return Refusal(
        f"the key {known.key.name} is trusted for {', '.join(known.remotes)} only",
        f"Trust it here too: flashdepot keys trust {known.key} {only}",
    )


def _unless_signed(envelope: Envelope, known: TrustedKey, url: str) -> Refusal | None:
    if envelope.is_signed_by(known.key):
        return None
    return Refusal(
        f"the signature by {known.key.name} does not fit: it was changed after it was signed",
        f"Find out who may write to {url}.",
    )


def trust_of(remotes: Sequence[RemoteSettings]) -> list[Trust]:
    """What this user believes of each remote now; :raises UsageError: when the user's keys cannot be read.

    A key of the user's own list counts as that list says, also where a remote names it: what was revoked stays so.
    """
    users = UserSettings.of_this_user().trusted_keys()
    known = {trusted.key.id for trusted in users}
    return [
        Trust(
            remote,
            (*users, *(TrustedKey(key, (remote.name,)) for key in remote.keys if key.id not in known)),
            today(),
        )
        for remote in remotes
    ]
