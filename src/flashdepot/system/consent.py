"""Files found on the way that the user has allowed, each as it was then."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.canonical import canonical_json
from flashdepot.system.files import disk_errors, read_json, write_atomic
from flashdepot.system.ownership import planted
from flashdepot.system.user_folders import user_config


def users_consents() -> Consents:
    """Those of this user, beside the user's configuration."""
    return Consents(user_config() / "trusted.json")


class Consents(msgspec.Struct, frozen=True):
    """The SHA-256 of each file that was allowed, by its path, kept in ``file``."""

    file: Path

    def given(self, path: Path, digest: str) -> bool:
        """Whether a file was allowed with these bytes; raises as :meth:`all` does."""
        return self.all().get(_key(path)) == digest

    def give(self, path: Path, digest: str) -> None:
        """Allow a file with these bytes, and with no others.

        :raises MissingToolError: when it cannot be written down.
        """
        self._write({**self.all(), _key(path): digest})

    def withdraw(self, path: Path) -> bool:
        """Forget a file; ``False`` when it was not allowed."""
        kept = dict(self.all())
        found = kept.pop(_key(path), None) is not None
        if found:
            self._write(kept)
        return found

    def all(self) -> Mapping[str, str]:
        """Every path, with the digest that was allowed.

        :raises UsageError: when the list is damaged, or another user may have written it.
        """
        try:
            if by_others := planted(self.file):
                raise UsageError(
                    f"{self.file} is not believed: {by_others}.", hint=f"Remove it: rm {shlex.quote(str(self.file))}"
                )
            allowed = read_json(self.file)["trusted"]
        except FileNotFoundError:
            return {}
        except (IntegrityError, LookupError, TypeError) as error:
            raise UsageError(
                f"{self.file} is damaged: {error}.", hint=f"Remove it: rm {shlex.quote(str(self.file))}"
            ) from error
        if not isinstance(allowed, dict) or not all(isinstance(digest, str) for digest in allowed.values()):
            raise UsageError(
                f"{self.file} is damaged: it has no digests.", hint=f"Remove it: rm {shlex.quote(str(self.file))}"
            )
        return allowed

    def _write(self, allowed: Mapping[str, str]) -> None:
        with disk_errors(self.file.parent):
            write_atomic(self.file, canonical_json({"trusted": dict(sorted(allowed.items()))}))


def _key(path: Path) -> str:
    return str(path.resolve())
