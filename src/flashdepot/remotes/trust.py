"""Whether a record is to be believed: who has signed it, and whether this user trusts them today."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from flashdepot.model.public_key import TrustedKey
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.envelopes import Envelope
from flashdepot.remotes.user_settings import UserSettings, today

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

    def refusal(self, envelope: Envelope) -> Refusal | None:
        """Why a record is not to be believed; ``None`` when it is."""
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
            refused = self._against(key_id, envelope)
            if refused is None:
                signers.add(key_id)
            else:
                against.append(refused)
        if len(signers) >= self.remote.builders:
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

    def _against(self, key_id: str, envelope: Envelope) -> Refusal | None:
        """Why one signature counts for nothing."""
        known = _usable(key_id, self.keys, self.today)
        if isinstance(known, Refusal):
            return known
        name = known.key.name
        if known.remotes and self.remote.name not in known.remotes:
            return Refusal(
                f"the key {name} is trusted for {', '.join(known.remotes)} only",
                f"Trust it here too: flashdepot keys trust {known.key} --remote {self.remote.name}",
            )
        return _unless_signed(envelope, known, self.remote.url)


def refusal_of_index(
    address: str, payload: bytes, envelopes: Sequence[Envelope], keys: Sequence[TrustedKey], today: date
) -> Refusal | None:
    """Why the list of an index is not to be believed, ``None`` when one of some keys has signed it.

    :param payload: what its publisher signs, for the bytes that the list has here.
    """
    ours = [
        (envelope, key_id) for envelope in envelopes if envelope.payload == payload for key_id, _ in envelope.signatures
    ]
    if not ours and envelopes:
        return Refusal("it was changed after it was signed", f"Find out who may write to {address}.")
    if not ours:
        return Refusal(
            "nobody has signed it",
            "Let its publisher sign it ('flashdepot keys new', then 'flashdepot index' again). pip and uv install from it "
            "without that, verified by the SHA-256 that it names.",
        )
    against = []
    for envelope, key_id in ours:
        known = _usable(key_id, keys, today)
        refused = known if isinstance(known, Refusal) else _unless_signed(envelope, known, address)
        if refused is None:
            return None
        against.append(refused)
    return against[0]


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
