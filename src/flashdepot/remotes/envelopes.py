"""Signed statements, as DSSE envelopes, several in one small file of a remote."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.model.canonical import canonical_json
from flashdepot.model.public_key import PublicKey
from flashdepot.model.table import Table
from flashdepot.system.files import parse_json

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope as Dsse

    from flashdepot.remotes.signing import SigningKey

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
