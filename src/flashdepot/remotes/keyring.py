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
from flashdepot.remotes.signing import (
    SigningKey,
    finish_rotation,
    keep,
    next_key,
    own_keys,
    require_name,
    write_private,
)
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.system.files import disk_errors, sync_folder


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
    with settings.locked():
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

    A kill leaves the old key, or both, or the new one: the new key is on the disk before it is trusted, and trusted before
    it takes the place of the old one. A rotation that was stopped is finished by the next one, or by whatever signs next.

    :raises UsageError: when there is no such key, or several and none is named.
    """
    with settings.locked():
        name = _own_name(settings, name)
        path = settings.private_keys / f"{name}.pem"
        if (finished := finish_rotation(settings, name)) is not None:
            return MadeKey(path, finished.public)
        old, new = _public_of(path), SigningKey.new(name)
        with disk_errors(settings.private_keys):
            waiting = write_private(new, next_key(settings.private_keys, name))
            sync_folder(settings.private_keys)
        known = [
            _until(trusted, name, days) if old and trusted.key.id == old.id else trusted
            for trusted in settings.trusted_keys()
        ]
        settings.write_keys([*known, TrustedKey(new.public, expires=expires)])
        with disk_errors(settings.private_keys):
            waiting.replace(path)
            sync_folder(settings.private_keys)
        return MadeKey(path, new.public)


def _own_name(settings: UserSettings, name: str | None) -> str:
    """The key that is meant, of those that are here; :raises UsageError: as :func:`rotate_key`."""
    found = [path.stem for path in own_keys(settings.private_keys)]
    if name is None and len(found) == 1:
        return found[0]
    if name is None:
        raise UsageError(
            f"Which key is to be replaced? Yours are: {', '.join(found) or 'none'}.", hint="flashdepot keys rotate NAME"
        )
    require_name(name)
    if name not in found:
        raise UsageError(f"You have no private key {name}.", hint=f"Make one: flashdepot keys new {name}")
    return name


def _until(trusted: TrustedKey, name: str, days: int) -> TrustedKey:
    """The old key, believed for some days more under another name; a revoked one stays as it is."""
    if trusted.revoked is not None:
        return trusted
    end = today() + timedelta(days=days)
    public = PublicKey(f"{name[:50]}-until-{end}", trusted.key.public)
    return replace(trusted, key=public, expires=min(trusted.expires or end, end))


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
