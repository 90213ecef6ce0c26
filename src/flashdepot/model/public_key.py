"""Keys that records are signed with: the half that everybody may know."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import date

import msgspec

from flashdepot.errors import UsageError

KEY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_BYTES = 32


class PublicKey(msgspec.Struct, frozen=True):
    """An ed25519 key: a name for people, and its 32 bytes in hexadecimal. Written as ``NAME:BASE64``."""

    name: str
    public: str

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read ``NAME:BASE64``; :raises UsageError: when it is none."""
        name, _, encoded = text.strip().partition(":")
        try:
            public = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            public = b""
        if len(public) != _BYTES or re.fullmatch(KEY_NAME, name) is None:
            raise UsageError(
                f"'{text[:100]}' is not a public key: expected NAME:BASE64, with 32 bytes in Base64.",
                hint="Whoever signs sees the line with: flashdepot keys ls",
            )
        return cls(name, public.hex())

    @property
    def id(self) -> str:
        """What signatures call the key: the SHA-256 of its bytes. Names are each reader's own."""
        return hashlib.sha256(bytes.fromhex(self.public)).hexdigest()

    def __str__(self) -> str:
        return f"{self.name}:{base64.b64encode(bytes.fromhex(self.public)).decode()}"


class TrustedKey(msgspec.Struct, frozen=True):
    """A key whose signatures are believed: from some remotes or from all, until a day, unless it was revoked.

    ``remotes`` is empty for all. ``expires`` is the last day. ``revoked`` is the day on which trust was withdrawn.
    """

    key: PublicKey
    remotes: tuple[str, ...] = ()
    expires: date | None = None
    revoked: date | None = None
