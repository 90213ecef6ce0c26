"""This user's private keys: made, replaced, kept in files that only their owner reads, and used."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shlex
from datetime import date, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace
from securesystemslib.signer import CryptoSigner, SSlibKey

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.disk import disk_errors, sync_folder
from flashdepot.files.trust import ANOTHER_CONFIG
from flashdepot.files.user_files import is_device
from flashdepot.model.remote import KEY_NAME, PublicKey, TrustedKey
from flashdepot.remotes.user_settings import UserSettings, today

VARIABLE = "FLASHDEPOT_SIGNING_KEY"
_ENDING = ".pem"
_SHOWN = 12


class SigningKey(msgspec.Struct, frozen=True):
    """A private key that can sign, and its public half."""

    public: PublicKey
    signer: CryptoSigner

    @classmethod
    def new(cls, name: str) -> SigningKey:
        """A key that nobody had before; :raises UsageError: for a name that cannot be one."""
        require_name(name)
        return cls.parse(name, CryptoSigner.generate_ed25519().private_bytes, name)

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a file; :raises UsageError: as :meth:`parse`; :raises IntegrityError: when others may read it."""
        try:
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise IntegrityError(
                    f"{path} can be read or written by others, and anyone who has it signs as you.",
                    hint=f"chmod 600 {shlex.quote(str(path))}; if others may have read it: flashdepot keys rotate {path.stem}",
                )
            return cls.parse(path.stem, path.read_bytes(), str(path))
        except OSError as error:
            raise UsageError(f"The signing key {path} cannot be read: {error.strerror}.") from error

    @classmethod
    def parse(cls, name: str, pem: bytes, place: str) -> SigningKey:
        """The key of a PEM that is in ``place``; :raises UsageError: when it is not an ed25519 key without a password."""
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        try:
            private = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise UsageError(
                f"{place} is not an ed25519 key in PEM without a password.", hint="Make one: flashdepot keys new"
            )
        public = PublicKey(name, private.public_key().public_bytes_raw().hex())
        known = SSlibKey(public.id, "ed25519", "ed25519", {"public": public.public})
        return cls(public, CryptoSigner(private, known))


def require_name(name: str) -> None:
    """:raises UsageError: for a text that is not a name of a key."""
    if re.fullmatch(KEY_NAME, name) is None:
        raise UsageError(f"'{name[:80]}' is not a name for a key: letters, digits, '.', '_' and '-', at most 64.")
    if is_device(name):
        raise UsageError(
            f"'{name}' is not a name for a key: it is a device of Windows, and a file there has the key's name."
        )


def _write(key: SigningKey, place: Path) -> Path:
    """Write a private key, whole and on the disk, into a file next to its place that only this user reads."""
    path = place.with_name(f"{place.name}.tmp")
    with disk_errors(path.parent, ANOTHER_CONFIG):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key.signer.private_bytes)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        return path


def _place(settings: UserSettings, name: str) -> Path:
    return settings.private_keys / f"{name}{_ENDING}"


def _put(written: Path, path: Path) -> None:
    with disk_errors(path.parent, ANOTHER_CONFIG):
        written.replace(path)
        sync_folder(path.parent)


def choose_key(settings: UserSettings) -> SigningKey:
    """The key to sign with: that of ``FLASHDEPOT_SIGNING_KEY``, else the only one there is.

    The variable has a path, or the PEM itself; :raises UsageError: when there is none, or several, or it was revoked.
    """
    key = _chosen(settings)
    for known in settings.trusted_keys():
        if known.key.id == key.public.id and known.revoked is not None:
            raise UsageError(
                f"Your key {known.key.name} ({key.public.id[:_SHOWN]}) was revoked on {known.revoked}, and signs nothing.",
                hint=f"Make a new one: flashdepot keys rotate {known.key.name}"
                + (f", and put it into {VARIABLE}." if key.public.name == "environment" else ""),
            )
    return key


def _setting(path: Path) -> str:
    return f'set "{VARIABLE}={path}"' if os.name == "nt" else f"export {VARIABLE}={shlex.quote(str(path))}"


def _chosen(settings: UserSettings) -> SigningKey:
    if value := os.environ.get(VARIABLE, ""):
        if value.lstrip().startswith("-----BEGIN"):
            return SigningKey.parse("environment", value.encode(), VARIABLE)
        return SigningKey.read(Path(value))
    found = settings.own_keys()
    if not found:
        raise UsageError(
            "There is no key to sign with, and readers accept only what a trusted key has signed.",
            hint=f"Make one: flashdepot keys new, or name the file of one: {VARIABLE}=FILE",
        )
    if len(found) > 1:
        revoked = {known.key.id for known in settings.trusted_keys() if known.revoked is not None}
        found = [path for path in found if SigningKey.read(path).public.id not in revoked] or found[:1]
    if len(found) > 1:
        names = ", ".join(path.stem for path in found)
        raise UsageError(f"There are several keys: {names}.", hint=f"Name one: {_setting(found[0])}")
    return SigningKey.read(found[0])


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
    """Make a key, keep it, and trust it; :raises UsageError: for a name that cannot be one, or that is taken."""
    key = SigningKey.new(name)
    with settings.locked():
        if any(trusted.key.name == name and trusted.revoked is None for trusted in settings.trusted_keys()):
            raise UsageError(
                f"You trust a key {name} already.",
                hint=f"Replace it: flashdepot keys rotate {name}, or choose another name.",
            )
        path = _place(settings, name)
        if path.exists():
            raise UsageError(
                f"There is a key {name} already: {path}.", hint=f"Replace it: flashdepot keys rotate {name}"
            )
        _put(_write(key, path), path)
        settings.trust(TrustedKey(key.public, expires=expires))
    return MadeKey(path, key.public)


def rotate_key(settings: UserSettings, name: str | None, days: int, expires: date | None) -> MadeKey:
    """Replace a key of this user's by a new one of the same name; the old one is trusted for some days more.

    The new key is on the disk before it is trusted, and trusted before it takes the place of the old one: after a kill the
    old one signs as before, or the new one. :raises UsageError: when there is no such key, or it is not known which.
    """
    with settings.locked():
        name = _own_name(settings, name)
        path = _place(settings, name)
        old, new = _public_of(path), SigningKey.new(name)
        written = _write(new, path)
        known = [
            _until(trusted, name, days) if old and trusted.key.id == old.id else trusted
            for trusted in settings.trusted_keys()
        ]
        settings.write_keys([*known, TrustedKey(new.public, expires=expires)])
        _put(written, path)
        return MadeKey(path, new.public)


def _own_name(settings: UserSettings, name: str | None) -> str:
    """The key that is meant, of those that are here; :raises UsageError: as :func:`rotate_key`."""
    found = [path.stem for path in settings.own_keys()]
    if name is None and len(found) == 1:
        return found[0]
    if not found:
        raise UsageError("You have no private key.", hint="Make one: flashdepot keys new")
    if name is None:
        raise UsageError(f"Which key is to be replaced: {', '.join(found)}?", hint="flashdepot keys rotate NAME")
    require_name(name)
    if name not in found:
        raise UsageError(f"You have no private key {name}.", hint=f"Make one: flashdepot keys new {name}")
    return name


def _until(trusted: TrustedKey, name: str, days: int) -> TrustedKey:
    """The old key, trusted for some days more under another name; a revoked one stays as it is."""
    if trusted.revoked is not None:
        return trusted
    end = today() + timedelta(days=days)
    public = PublicKey(f"{name[:50]}-until-{end}", trusted.key.public)
    return replace(trusted, key=public, expires=min(trusted.expires or end, end))


def own_ids(settings: UserSettings) -> set[str]:
    """The ids of the keys whose private half is here and can be read."""
    return {public.id for path in settings.own_keys() if (public := _public_of(path))}


def state(key: TrustedKey, day: date) -> str:
    """Whether a key is trusted on a day."""
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
