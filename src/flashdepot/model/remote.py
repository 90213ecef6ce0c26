"""A place where other machines keep what they made: where it is, how far it is trusted, and the keys that sign."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from datetime import date
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.codec import Spelled

KEY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_BYTES = 32


class PublicKey(Spelled):
    """An ed25519 key: a name for people, and its 32 bytes in hexadecimal. Written as ``NAME:BASE64``."""

    __slots__ = ("name", "public")

    def __init__(self, name: str, public: str) -> None:
        self.name, self.public = name, public

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read ``NAME:BASE64``; :raises UsageError: for anything else."""
        name, _, encoded = text.strip().partition(":")
        try:
            public = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            public = b""
        if len(public) != _BYTES or re.fullmatch(KEY_NAME, name) is None:
            raise UsageError(
                f"'{text[:100]}' is not a public key: expected NAME:BASE64, with 32 bytes in Base64.",
                hint="The signer sees the line with: flashdepot keys ls",
            )
        return cls(name, public.hex())

    @property
    def id(self) -> str:
        """What signatures call the key: the SHA-256 of its bytes. Names are each reader's own."""
        return hashlib.sha256(bytes.fromhex(self.public)).hexdigest()

    def __str__(self) -> str:
        return f"{self.name}:{base64.b64encode(bytes.fromhex(self.public)).decode()}"


class TrustedKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key whose signatures are trusted: from some remotes or from all, until a day, unless it was revoked.

    ``remotes`` is empty for all. ``expires`` is the last day. ``revoked`` is the day on which trust was withdrawn.
    """

    key: PublicKey
    remotes: tuple[str, ...] = ()
    expires: date | None = None
    revoked: date | None = None


class KeysFile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename={"keys": "key"}):
    """``keys.toml``. ``signatures``: a key was trusted for a single remote, of which this list need not know.

    ``unsigned`` are the addresses of indexes that are taken without a signature.
    """

    unsigned: tuple[str, ...] = ()
    signatures: bool = False
    keys: tuple[TrustedKey, ...] = ()


BUCKETS = ("s3", "gs", "az")
SCHEMES = (*BUCKETS, "https", "http", "file")
PATIENCE = 2.0
"""Seconds that a remote has to answer for a record, unless its settings say otherwise."""

_MOST_PATIENCE = 600
_HERE = {"127.0.0.1", "::1", "localhost"}


class RemoteSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One remote.

    ``push``: what is built here goes there. ``unsigned``: its records are taken without signatures. ``builders``: how
    many trusted keys must have signed a record. ``anonymous``: it is read without credentials. ``keys`` are trusted for
    this remote only. ``timeout`` is in seconds.
    """

    name: str
    url: str
    push: bool = False
    unsigned: bool = False
    builders: int = 1
    anonymous: bool = False
    keys: tuple[PublicKey, ...] = ()
    timeout: float = PATIENCE

    def __post_init__(self) -> None:
        """:raises ValueError: for a name or an address that cannot be."""
        if re.fullmatch(KEY_NAME, self.name) is None:
            raise ValueError(f"'{self.name[:80]}' is not a name for a remote: letters, digits, '.', '_' and '-'")
        _require_address(self.url)
        if self.unsigned and self.url.startswith("http:") and urlsplit(self.url).hostname not in _HERE:
            raise ValueError(
                f"'{self.url[:100]}' is not encrypted, so anybody on the way could change unsigned records: use https, or "
                "signatures"
            )
        if self.builders < 1:
            raise ValueError(f"builders is {self.builders}: expected 1 or more")
        if not 0 < self.timeout <= _MOST_PATIENCE:
            raise ValueError(f"timeout is {self.timeout}: expected seconds, up to {_MOST_PATIENCE}")

    @property
    def is_local(self) -> bool:
        """Whether it is a folder, which needs no network."""
        return self.url.startswith("file:")


class RemotesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"remotes": "remote"}):
    """``remotes.toml``: in the order in which they are asked."""

    remotes: tuple[RemoteSettings, ...] = ()


def _require_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        raise ValueError("the address of a remote cannot be read") from None
    if password is not None or "@" in parts.netloc:
        raise ValueError(
            f"the address on {parts.hostname} has credentials in it, which no file of flashdepot keeps: "
            "use ~/.netrc for https, and each cloud's own variables and files for the others"
        )
    if parts.scheme not in SCHEMES:
        make = "" if "://" in url else f", which this makes: mkdir {url[:100]}"
        raise ValueError(
            f"'{url[:100]}' is not the address of a remote: expected {', '.join(SCHEMES)}, then ://, or a folder that exists{make}"
        )
    if parts.query or parts.fragment:
        raise ValueError(f"'{url[:100]}' has a query or a fragment, and a remote is a folder")
    elsewhere = parts.netloc and os.name != "nt"  # where file://SERVER/SHARE is a share of the network
    if parts.scheme == "file" and (elsewhere or not parts.path.startswith("/")):
        raise ValueError(f"'{url[:100]}' is not an absolute path: expected file:///DIR")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError(f"'{url[:100]}' names no server or bucket")


def remote_settings(**values: Any) -> RemoteSettings:
    """Settings from options; :raises UsageError: for what cannot be."""
    try:
        return RemoteSettings(**values)
    except ValueError as error:
        raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
