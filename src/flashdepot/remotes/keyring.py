"""This user's own keys: made, replaced, and told from those of others."""

from __future__ import annotations

import getpass
import platform
import re
from datetime import date, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.model.public_key import PublicKey, TrustedKey
from flashdepot.remotes.signing import SigningKey, keep, own_keys, require_name
from flashdepot.remotes.user_settings import UserSettings, today


class MadeKey(msgspec.Struct, frozen=True):
    """A key that was just made: the file of its private half, and its public half."""

    path: Path
    public: PublicKey


def default_name() -> str:
    """The user and the machine, as far as a name can hold them."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "user"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{user}-{platform.node()}").strip("-._")[:64] or "key"


def new_key(settings: UserSettings, name: str, expires: date | None) -> MadeKey:
    """Make a key, keep it, and trust it.

    :raises UsageError: for a name that cannot be one, or that is taken.
    """
    key = SigningKey.new(name)
    if any(trusted.key.name == name and trusted.revoked is None for trusted in settings.trusted_keys()):
        raise UsageError(
            f"You trust a key {name} already.",
            hint=f"Replace it: flashdepot keys rotate {name}, or choose another name.",
        )
    path = keep(key, settings.private_keys)
    settings.trust(TrustedKey(key.public, expires=expires))
    return MadeKey(path, key.public)


def rotate_key(settings: UserSettings, name: str | None, days: int, expires: date | None) -> MadeKey:
    """Replace a key of this user's by a new one of the same name; the old one is believed for some days more.

    :raises UsageError: when there is no such key, or several and none is named.
    """
    found = own_keys(settings.private_keys)
    if name is None and len(found) == 1:
        name = found[0].stem
    if name is None:
        names = ", ".join(path.stem for path in found) or "none"
        raise UsageError(f"Which key is to be replaced? Yours are: {names}.", hint="flashdepot keys rotate NAME")
    require_name(name)
    path = settings.private_keys / f"{name}.pem"
    if path not in found:
        raise UsageError(f"You have no private key {name}.", hint=f"Make one: flashdepot keys new {name}")
    old = _public_of(path)
    end = today() + timedelta(days=days)
    known = [
        replace(
            trusted,
            key=PublicKey(f"{name[:50]}-until-{end}", trusted.key.public),
            expires=min(trusted.expires or end, end),
        )
        if old is not None and trusted.key.id == old.id
        else trusted
        for trusted in settings.trusted_keys()
    ]
    new = SigningKey.new(name)
    # Trusted first: a kill between the steps leaves a key too many, and none that signs and is not believed.
    settings.write_keys([*known, TrustedKey(new.public, expires=expires)])
    path.unlink()
    return MadeKey(keep(new, settings.private_keys), new.public)


def own_ids(settings: UserSettings) -> set[str]:
    """The ids of the keys whose private half is here and can be read."""
    return {public.id for path in own_keys(settings.private_keys) if (public := _public_of(path))}


def state(key: TrustedKey, day: date) -> str:
    """Whether a key is believed on a day."""
    if key.revoked is not None:
        return f"revoked {key.revoked}"
    if key.expires is None:
        return "trusted"
    return f"{'trusted until' if day <= key.expires else 'expired'} {key.expires}"


def _public_of(path: Path) -> PublicKey | None:
    try:
        return SigningKey.read(path).public
    except FlashdepotError:
        return None
