"""The remotes and the trust of this user, in two files next to the user's configuration.

``keys.toml`` is the whole state of trust: keys are never removed from it, so that trust which was withdrawn is not the
same as none. Changes are made under a lock: a revocation is not lost to another process that writes at the same moment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.files.locks import lock_file
from flashdepot.files.trust import ANOTHER_CONFIG, read_settings, user_config, write_settings
from flashdepot.model.codec import plain

if TYPE_CHECKING:
    from flashdepot.model.remote import KeysFile, RemoteSettings, TrustedKey


def today() -> date:
    """The day by this machine's clock, the same for all time zones."""
    return datetime.now(timezone.utc).date()


class UserSettings(msgspec.Struct, frozen=True):
    """What one user has set, in a folder."""

    folder: Path

    @classmethod
    def of_this_user(cls) -> UserSettings:
        """Those in the user's configuration folder."""
        return cls(user_config())

    @property
    def private_keys(self) -> Path:
        """The folder of this user's own private keys."""
        return self.folder / "keys"

    def own_keys(self) -> list[Path]:
        """The files of the private keys."""
        return sorted(self.private_keys.glob("*.pem"))

    def remotes(self) -> list[RemoteSettings]:
        """In the order in which they are asked; :raises UsageError: when the file cannot be used."""
        if not os.path.lexists(self.folder / "remotes.toml"):
            return []  # most users have none, and are spared the imports
        from flashdepot.model.remote import RemotesFile  # noqa: PLC0415

        return list(read_settings(self.folder / "remotes.toml", RemotesFile).remotes)

    def add_remote(self, added: RemoteSettings) -> None:
        """Add a remote after the others, or in place of the one of that name."""
        with self.locked():
            remotes = {**{remote.name: remote for remote in self.remotes()}, added.name: added}
            self._write_remotes(list(remotes.values()))
            if added.keys:
                self._change_trust(signatures=True)

    def remove_remote(self, name: str) -> None:
        """Forget a remote; :raises UsageError: when none has that name."""
        with self.locked():
            known = self.remotes()
            kept = [remote for remote in known if remote.name != name]
            if len(kept) == len(known):
                raise UsageError(f"You have no remote '{name}'.", hint="See them: flashdepot remote ls")
            self._write_remotes(kept)

    def trusted_keys(self) -> list[TrustedKey]:
        """All keys that were ever trusted; :raises UsageError: when the file cannot be used."""
        return list(self._trust().keys)

    def trust(self, added: TrustedKey) -> None:
        """Trust a key, also in a new way; :raises UsageError: when it was revoked, or another one has its name."""
        with self.locked():
            known = self.trusted_keys()
            for trusted in known:
                if trusted.key.id == added.key.id and trusted.revoked is not None:
                    raise UsageError(
                        f"The key {trusted.key.name} ({trusted.key.id[:12]}) was revoked on {trusted.revoked}, and stays so.",
                        hint="Let its owner make a new one: flashdepot keys rotate",
                    )
                if trusted.key.name == added.key.name and trusted.key.id != added.key.id and trusted.revoked is None:
                    raise UsageError(
                        f"You trust another key as {added.key.name} ({trusted.key.id[:12]}).",
                        hint=f"If it was replaced: flashdepot keys revoke {added.key.name}, and trust the new one then. "
                        "Otherwise call the new one something else: OTHERNAME:BASE64",
                    )
            self.write_keys([*(trusted for trusted in known if trusted.key.id != added.key.id), added])

    def revoke(self, word: str) -> TrustedKey:
        """Never trust a key again, by its name or the beginning of its id; :raises UsageError: for none, or several."""
        with self.locked():
            known = self.trusted_keys()
            found = [k for k in known if k.revoked is None and (k.key.name == word or k.key.id.startswith(word))]
            if len(found) != 1:
                raise UsageError(
                    f"{len(found) or 'None'} of the keys that you trust {'have' if found else 'has'} the name or id '{word}'.",
                    hint="See them: flashdepot keys ls",
                )
            revoked = replace(found[0], revoked=today())
            self.write_keys([revoked if key is found[0] else key for key in known])
            return revoked

    def write_keys(self, keys: Sequence[TrustedKey]) -> None:
        """Write down all keys; :raises MissingToolError: when that cannot be done."""
        self._change_trust(keys=tuple(keys))

    def demand_signatures(self) -> None:
        """From now on indexes must be signed: keys are trusted somewhere else than in this user's list."""
        self._change_trust(signatures=True)

    def needs_signature(self, address: str) -> bool:
        """Whether an index must be signed: once any key was ever trusted, unless :meth:`set_unsigned` names it.

        Revoked and expired keys count, those of single remotes too, and so does a private key without a list.
        """
        trust = self._trust()
        if address in trust.unsigned:
            return False
        return bool(
            trust.keys
            or trust.signatures
            or any(remote.keys for remote in self.remotes())
            or any(self.private_keys.glob("*.pem*"))
        )

    def unsigned_indexes(self) -> tuple[str, ...]:
        """The addresses of indexes that are taken without a signature."""
        return self._trust().unsigned

    def set_unsigned(self, address: str, *, unsigned: bool) -> None:
        """Take an index without a signature from now on, or no longer."""
        with self.locked():
            others = tuple(known for known in self._trust().unsigned if known != address)
            self._change_trust(unsigned=(*others, address) if unsigned else others)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Change the files while no other process does; calls inside one another are one."""
        if self.folder in _LOCKED:
            yield
            return
        with lock_file(self.folder / ".lock", elsewhere=ANOTHER_CONFIG):
            _LOCKED.add(self.folder)
            try:
                yield
            finally:
                _LOCKED.discard(self.folder)

    def _trust(self) -> KeysFile:
        from flashdepot.model.remote import KeysFile  # noqa: PLC0415

        return read_settings(self.folder / "keys.toml", KeysFile)

    def _change_trust(self, **changes: Any) -> None:
        with self.locked():
            write_settings(self.folder / "keys.toml", plain(replace(self._trust(), **changes)))

    def _write_remotes(self, remotes: Sequence[RemoteSettings]) -> None:
        write_settings(self.folder / "remotes.toml", {"remote": plain(remotes)})


_LOCKED: set[Path] = set()
"""Folders that this process has locked."""
