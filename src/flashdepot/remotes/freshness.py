"""Whether what was signed is the newest: rollback and freeze are refused by the rules of TUF (specification, 5.4).

What a key stands for has a version that only grows and a day on which it ends. A reader remembers the newest version that
it has seen of each place, and refuses older ones. TUF's own files are not used: they have one owner, who names all keys in
a root file, and here each reader chooses whom to believe of several that know nothing of each other.
"""

from __future__ import annotations

import shlex
import time
from datetime import date, timedelta

import msgspec

from flashdepot.errors import IntegrityError, MissingToolError, UsageError
from flashdepot.model.canonical import canonical_json
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.system.files import read_json, write_atomic

LIFE = timedelta(days=180)
"""How long what was signed is believed. Whoever signs does so again when half of it has gone."""


class Edition(msgspec.Struct, frozen=True):
    """The version of what was signed, and the last day on which it is believed."""

    version: int
    expires: date

    @classmethod
    def after(cls, *earlier: Edition | None) -> Edition:
        """The next one: versions are seconds of the clock, so that a place that is begun anew goes on, and grow in any case."""
        least = max((edition.version + 1 for edition in earlier if edition is not None), default=0)
        return cls(max(least, int(time.time())), today() + LIFE)

    @property
    def is_young(self) -> bool:
        """Whether it need not be signed again yet."""
        return self.expires - today() > LIFE / 2

    def outdated(self, place: str, settings: UserSettings) -> str:
        """Why it is not to be believed, empty when it is; what is newer than all that was seen is remembered.

        :param place: whose versions these are.
        :raises UsageError: when what was seen cannot be read.
        """
        if today() > self.expires:
            return f"it was signed to be believed until {self.expires}, and this machine's clock says {today()}"
        seen = _seen(settings).get(place, 0)
        if self.version < seen:
            return f"it is an older state (version {self.version}) than this machine has seen there ({seen})"
        if self.version > seen:
            _remember(settings, place, self.version)
        return ""


def _seen(settings: UserSettings) -> dict[str, int]:
    path = settings.folder / "seen.json"
    try:
        found = msgspec.convert(read_json(path), dict[str, int])
    except FileNotFoundError:
        return {}
    except (IntegrityError, msgspec.ValidationError, OSError) as error:
        raise UsageError(f"{path} cannot be used: {error}", hint=f"Remove it: rm {shlex.quote(str(path))}") from error
    return found


def _remember(settings: UserSettings, place: str, version: int) -> None:
    try:
        with settings.locked():
            seen = _seen(settings)
            write_atomic(
                settings.folder / "seen.json", canonical_json({**seen, place: max(version, seen.get(place, 0))})
            )
    except (MissingToolError, OSError):
        return  # a configuration that may not be written, as in a container: expiry is judged all the same
