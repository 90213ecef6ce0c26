"""Private keys: made, kept in files that only their owner reads, and used."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec
from securesystemslib.signer import CryptoSigner, SSlibKey

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.model.public_key import KEY_NAME, PublicKey
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.system.files import disk_errors, sync_folder

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
        """The key in a file of :func:`keep`.

        :raises UsageError: when it is not there, or not an ed25519 key in PEM without a password.
        :raises IntegrityError: when others may read it.
        """
        try:
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise IntegrityError(
                    f"{path} can be read or written by others, and whoever has it signs as you.",
                    hint=f"chmod 600 {shlex.quote(str(path))}; if others may have read it: flashdepot keys rotate {path.stem}",
                )
            return cls.parse(path.stem, path.read_bytes(), str(path))
        except OSError as error:
            raise UsageError(f"The signing key {path} cannot be read: {error.strerror}.") from error

    @classmethod
    def parse(cls, name: str, pem: bytes, place: str) -> SigningKey:
        """The key of a PEM that lies in ``place``; :raises UsageError: when it is none, as :meth:`read`."""
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
    """:raises UsageError: for a text that is no name of a key."""
    if re.fullmatch(KEY_NAME, name) is None:
        raise UsageError(f"'{name[:80]}' is not a name for a key: letters, digits, '.', '_' and '-', at most 64.")


def keep(key: SigningKey, folder: Path) -> Path:
    """Write a private key into a new file that only this user reads.

    :raises UsageError: when there is a key of that name.
    :raises MissingToolError: when it cannot be written; nothing is left then.
    """
    path = folder / f"{key.public.name}{_ENDING}"
    with disk_errors(folder):
        if path.exists():
            raise _taken(key.public.name, path)
        whole = write_private(key, path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp"))
        try:
            place_new(whole, path)
        except FileExistsError:
            raise _taken(key.public.name, path) from None
        finally:
            whole.unlink(missing_ok=True)
        sync_folder(folder)
    return path


def write_private(key: SigningKey, path: Path) -> Path:
    """Write a private key, whole and on the disk, into a file that only this user reads; nothing is left of a failure."""
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
    return path


def place_new(source: Path, path: Path) -> None:
    """Give a file a name that nothing has; :raises FileExistsError: when something has it."""
    if os.name == "nt":
        source.rename(path)  # there it does not replace
        return
    try:
        path.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(str(path)) from None
        source.rename(path)


def _taken(name: str, path: Path) -> UsageError:
    return UsageError(f"There is a key {name} already: {path}.", hint=f"Replace it: flashdepot keys rotate {name}")


def own_keys(folder: Path) -> list[Path]:
    """The files of this user's private keys."""
    return sorted(folder.glob(f"*{_ENDING}"))


def next_key(folder: Path, name: str) -> Path:
    """Where the next private key of a name lies until it takes the place of the present one."""
    return folder / f"{name}{_ENDING}.next"


def finish_rotation(settings: UserSettings, name: str) -> SigningKey | None:
    """Give a key its place when it is trusted already, since the rotation was stopped before; ``None`` if none was."""
    waiting = next_key(settings.private_keys, name)
    if not waiting.exists():
        return None
    with settings.locked(), disk_errors(waiting.parent):
        try:
            key = SigningKey.read(waiting)
        except FlashdepotError:
            return None  # it was never written whole, so that nobody trusts it
        if not any(known.key.id == key.public.id and known.revoked is None for known in settings.trusted_keys()):
            return None
        waiting.replace(settings.private_keys / f"{name}{_ENDING}")
        sync_folder(waiting.parent)
    return SigningKey.read(settings.private_keys / f"{name}{_ENDING}")


def choose_key(
    settings: UserSettings, name: str | None = None, environment: Mapping[str, str] = os.environ
) -> SigningKey:
    """The key to sign with: the one that is named, else that of ``FLASHDEPOT_SIGNING_KEY``, else the only one there is.

    The variable has the path of a file, or the PEM itself, as CI systems hand out secrets.

    :raises UsageError: when there is none, or several, or it was revoked.
    """
    return _unless_revoked(_chosen(settings, name, environment), settings)


def _chosen(settings: UserSettings, name: str | None, environment: Mapping[str, str]) -> SigningKey:
    folder = settings.private_keys
    value = environment.get(VARIABLE, "")
    if name is None and value:
        if value.lstrip().startswith("-----BEGIN"):
            return SigningKey.parse("environment", value.encode(), VARIABLE)
        return SigningKey.read(Path(value))
    if name is not None:
        require_name(name)
        return finish_rotation(settings, name) or SigningKey.read(folder / f"{name}{_ENDING}")
    found = own_keys(folder)
    if not found:
        raise UsageError(
            "There is no key to sign with, and readers take only what a key that they trust has signed.",
            hint=f"Make one: flashdepot keys new, or name the file of one: {VARIABLE}=FILE",
        )
    if len(found) > 1:
        names = ", ".join(path.stem for path in found)
        raise UsageError(f"There are several keys: {names}.", hint=f"Name one: {VARIABLE}={found[0]}")
    return finish_rotation(settings, found[0].stem) or SigningKey.read(found[0])


def _unless_revoked(key: SigningKey, settings: UserSettings) -> SigningKey:
    """:raises UsageError: for a key that this user has revoked: readers refuse it, or have yet to hear of it."""
    for known in settings.trusted_keys():
        if known.key.id == key.public.id and known.revoked is not None:
            raise UsageError(
                f"Your key {known.key.name} ({key.public.id[:_SHOWN]}) was revoked on {known.revoked}, and signs nothing.",
                hint=f"Make a new one: flashdepot keys rotate {known.key.name}"
                + (f", and put it into {VARIABLE}." if key.public.name == "environment" else ""),
            )
    return key
