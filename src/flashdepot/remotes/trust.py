"""Whether a record is to be believed: who has signed it, and whether this user trusts them today."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import date

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.model.public_key import PublicKey, TrustedKey
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.envelopes import Envelope
from flashdepot.remotes.statements import IndexStatement
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
