"""Signed statements, as DSSE envelopes, several in one small file of a remote, and which are trusted.

That depends on who has signed one, and whether this user trusts them today.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.model.codec import canonical_json
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.remotes.statements import CLOCK, Edition, IndexStatement
from flashdepot.remotes.user_settings import UserSettings, today

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope as Dsse

    from flashdepot.remotes.keys import SigningKey


PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
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
        """The payload with the signature of a key."""
        signature = key.signer.sign(self._dsse("").pae())
        return Envelope(self.payload, ((signature.keyid, signature.signature),))

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
            self.payload, PAYLOAD_TYPE, {key: Signature(key, value) for key, value in self.signatures if key == key_id}
        )


class _Signature(msgspec.Struct, frozen=True):
    keyid: str
    sig: bytes


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    """An envelope in a file; msgspec writes bytes in base64, as DSSE does."""

    payload: bytes
    signatures: list[_Signature]
    payload_type: Literal["application/vnd.in-toto+json"]


class _File(msgspec.Struct, frozen=True):
    schema: int
    records: list[msgspec.Raw]


def write_envelopes(envelopes: Sequence[Envelope]) -> bytes:
    """The file of some envelopes: the first ones, as many as there may be."""
    rows = [
        _Row(one.payload, [_Signature(key, bytes.fromhex(value)) for key, value in one.signatures], PAYLOAD_TYPE)
        for one in envelopes[:_MOST]
    ]
    return canonical_json({"schema": _SCHEMA, "records": msgspec.to_builtins(rows)})


def read_envelopes(data: bytes) -> list[Envelope]:
    """Read what :func:`write_envelopes` wrote; :raises IntegrityError: when it is nothing of the kind.

    A damaged one among several, and one with more signatures than there are builders, counts as not there.
    """
    rows: list[_Row] = []
    try:
        file = msgspec.json.decode(data, type=_File)
        if file.schema != _SCHEMA:
            raise ValueError(f"its schema is {file.schema}, and this flashdepot reads {_SCHEMA}")  # noqa: TRY301
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"the record is damaged: {error}") from error
    for row in file.records[:_MOST]:
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(msgspec.json.decode(row, type=_Row))
    if file.records and not rows:
        raise IntegrityError("the record is damaged: none of its envelopes can be read")
    return [
        Envelope(row.payload, tuple({one.keyid: one.sig.hex() for one in row.signatures}.items()))
        for row in rows
        if len(row.signatures) <= _MOST_SIGNATURES
    ]


def merge(found: Sequence[Envelope], ours: Envelope, is_trusted: Callable[[Envelope], bool]) -> list[Envelope] | None:
    """The envelopes that a file should hold: ours first, with the signatures that its payload has already.

    Those that are not trusted come last, so that nobody crowds out what others trust. ``None`` when all ours is there.
    """
    same = next((envelope for envelope in found if envelope.payload == ours.payload), None)
    if same is not None and set(ours.signatures) <= set(same.signatures):
        return None
    whole = ours if same is None else Envelope(ours.payload, tuple(dict((*same.signatures, *ours.signatures)).items()))
    others = [envelope for envelope in found if envelope.payload != ours.payload]
    return [whole, *sorted(others, key=lambda envelope: not is_trusted(envelope))]


class Refusal(msgspec.Struct, frozen=True):
    """Why a record is not trusted, and what the reader can do."""

    reason: str
    hint: str


_MOST_REASONS = 4
"""Of so many signatures a refusal says what is wrong with them."""


def _together(refusals: Sequence[Refusal]) -> Refusal:
    """One refusal of something that several have signed, with what is wrong with each signature."""
    some = [*dict.fromkeys(refusals)][:_MOST_REASONS]
    hints = dict.fromkeys(one.hint.rstrip(".") for one in some)
    return Refusal(", and ".join(dict.fromkeys(one.reason for one in some)), ". ".join(hints))


class Trust(msgspec.Struct, frozen=True):
    """What one reader trusts of one remote on one day."""

    remote: RemoteSettings
    keys: Sequence[TrustedKey]
    today: date

    def refusal(
        self, envelope: Envelope, outdated: Callable[[PublicKey], Refusal | None] = lambda _: None
    ) -> Refusal | None:
        """Why a record is not to be trusted, ``None`` when it is; ``outdated`` says why a key does not stand for it any more."""
        remote = self.remote
        if remote.unsigned:
            return None
        if not envelope.signatures:
            return Refusal(
                "nobody has signed it",
                f"Let its builder sign it ('flashdepot keys new', then 'flashdepot depot push'). If you trust all who may "
                f"write to {remote.name}: flashdepot remote add {remote.name} {remote.url} --unsigned",
            )
        against: list[Refusal] = []
        names: set[str] = set()
        for key_id, _ in envelope.signatures:
            key = _signer(envelope, key_id, self.keys, self.today, remote.name, remote.url)
            why = key if isinstance(key, Refusal) else outdated(key)
            if why is not None:
                against.append(why)
            elif isinstance(key, PublicKey):
                names.add(key.name)
        if len(set(map(_owner, names))) >= remote.builders:
            return None
        if names:
            return Refusal(
                f"{remote.builders} builders must have signed it, and of those that you trust only "
                f"{', '.join(sorted(names))} has",
                "Wait until another builder has pushed the same bytes.",
            )
        return _together(against)


def refusal_of_index(
    address: str, name: str, data: bytes, envelopes: Sequence[Envelope], settings: UserSettings
) -> Refusal | None:
    """Why the list of an index is not to be trusted, ``None`` when a key of this user has signed it, and lately."""
    expected = (name, hashlib.sha256(data).hexdigest())
    ours: list[tuple[Edition, Envelope]] = []
    for envelope in envelopes:
        with contextlib.suppress(IntegrityError):
            statement = IndexStatement.read(envelope.payload)
            if (statement.name, statement.digest) == expected and envelope.signatures:
                ours.append((statement.edition, envelope))
    if not ours and envelopes:
        return Refusal("it was changed after it was signed", f"Find out who may write to {address}.")
    if not ours:
        return Refusal(
            "nobody has signed it",
            "Let its publisher sign it ('flashdepot keys new', then 'flashdepot index' again). pip and uv install from it "
            "without that, verified by the SHA-256 that it names.",
        )
    keys, against = settings.trusted_keys(), []
    for edition, envelope in sorted(ours, key=lambda one: -one[0].version):
        for key_id, _ in envelope.signatures:
            key = _signer(envelope, key_id, keys, today(), address, address)
            if isinstance(key, Refusal):
                against.append(key)
            elif why := edition.outdated(address, settings):
                again = (
                    f"Let its publisher sign it again: 'flashdepot index' with the same folder, and upload it. {CLOCK}"
                )
                against.append(Refusal(why, again))
            else:
                return None
    return _together(against)


def _owner(name: str) -> str:
    """Whose key it is: one that was replaced, and the one in its place, are one builder's."""
    return re.sub(r"-until-\d{4}-\d\d-\d\d$", "", name)[:50]


def _signer(
    envelope: Envelope, key_id: str, keys: Sequence[TrustedKey], day: date, place: str, url: str
) -> PublicKey | Refusal:
    """The trusted key of a signature at a place, a remote's name or an index's address, or why it counts for nothing."""
    known = next((trusted for trusted in keys if trusted.key.id == key_id), None)
    if known is None:
        return Refusal(
            f"it is signed by a key that you do not trust ({key_id[:12]})",
            "Ask its owner for the line of 'flashdepot keys ls', over a way that you trust: "
            "flashdepot keys trust NAME:BASE64",
        )
    name = known.key.name
    if known.revoked is not None:
        return Refusal(f"the key {name} was revoked on {known.revoked}", "Let it be signed by another key.")
    if known.expires is not None and day > known.expires:
        return Refusal(
            f"the key {name} expired on {known.expires}, and this machine's clock says {day}",
            f"Get the new key of {name}: flashdepot keys trust NAME:BASE64. {CLOCK}",
        )
    if known.remotes and place not in known.remotes:
        only = " ".join(f"--remote {remote}" for remote in (*known.remotes, place))
        return Refusal(
            f"the key {name} is trusted for {', '.join(known.remotes)} only",
            f"Trust it here too: flashdepot keys trust {known.key} {only}",
        )
    if not envelope.is_signed_by(known.key):
        return Refusal(
            f"the signature by {name} does not fit: it was changed after it was signed",
            f"Find out who may write to {url}.",
        )
    return known.key


def trust_of(remotes: Sequence[RemoteSettings]) -> list[Trust]:
    """What this user trusts of each remote now; :raises UsageError: when the user's keys cannot be read.

    A key of the user's own list counts as that list says, also where a remote names it: what was revoked stays so.
    """
    users = UserSettings.of_this_user().trusted_keys()
    known = {trusted.key.id for trusted in users}
    return [
        Trust(
            remote, (*users, *(TrustedKey(key, (remote.name,)) for key in remote.keys if key.id not in known)), today()
        )
        for remote in remotes
    ]
