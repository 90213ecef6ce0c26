"""Remotes: what other machines have made, and which of it is trusted. See docs/remotes.md.

Importing this costs next to nothing, because a hit of the depot needs no remote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from flashdepot.depot.store import NoRemotes
from flashdepot.errors import FlashdepotError, UsageError

if TYPE_CHECKING:
    from flashdepot.depot import Depot
    from flashdepot.events import Events
    from flashdepot.model.manifest import Manifest
    from flashdepot.model.remote import RemoteSettings
    from flashdepot.remotes.remote import OpenRemote


_T = TypeVar("_T")


def users_remotes() -> Sequence[RemoteSettings]:
    """The remotes of this user's configuration; :raises UsageError: when its file cannot be used."""
    from flashdepot.remotes.user_settings import UserSettings  # noqa: PLC0415

    return UserSettings.of_this_user().remotes()


class Remotes(NoRemotes):
    """The remotes that are set, in order.

    Nothing is read or asked before the depot lacks something.

    :param settings: called once, when the first remote is needed; what it raises reaches the caller.
    :param warn: called with a sentence for all that goes wrong.
    """

    def __init__(self, settings: Callable[[], Sequence[RemoteSettings]], warn: Callable[[str], None]) -> None:
        self._settings = settings
        self._warn = warn
        self._opened: list[OpenRemote] | None = None

    def only_read(self) -> Remotes:
        """The same remotes, to which nothing that is built is pushed by itself."""
        return Remotes(lambda: [replace(remote, push=False) for remote in self._settings()], self._warn)

    def first(self, ask: Callable[[OpenRemote], _T | None]) -> _T | None:
        """The first answer that is one, of all remotes in order; one that fails is not asked again."""
        for remote in self.usable():
            try:
                if answer := ask(remote):
                    return answer
            except FlashdepotError as error:  # noqa: PERF203  (a loop of a few remotes)
                remote.fail(error)
        return None

    def share(self, depot: Depot, manifest: Manifest, events: Events) -> None:
        """See :class:`NoRemotes`."""
        for remote in self.usable():
            if remote.settings.push:
                from flashdepot.remotes.push import push  # noqa: PLC0415  (most remotes are only read)

                try:
                    events.note(f"Pushed to {remote.name}: {push(remote, depot, [manifest], events)}.")
                except FlashdepotError as error:
                    why = f"{error.message.rstrip('.')}. {error.hint}".rstrip()
                    events.warn(f"The library was not pushed to {remote.name}: {why}")

    def named(self, name: str) -> OpenRemote:
        """The remote of a name; :raises UsageError: when there is none."""
        remotes = {remote.name: remote for remote in self.all()}
        if name not in remotes:
            known = f": there are {', '.join(remotes)}" if remotes else ""
            raise UsageError(f"There is no remote '{name}'{known}.", hint=f"Add it: flashdepot remote add {name} URL")
        return remotes[name]

    def all(self) -> Sequence[OpenRemote]:
        """Every remote that is set, whether it works or not."""
        if self._opened is None:
            settings = self._settings()
            if not settings:
                return []
            from flashdepot.remotes.remote import OpenRemote  # noqa: PLC0415
            from flashdepot.remotes.trust import trust_of  # noqa: PLC0415

            self._opened = [OpenRemote(trust, self._warn) for trust in trust_of(settings)]
        return self._opened

    def usable(self) -> Iterator[OpenRemote]:
        """See :class:`NoRemotes`."""
        for remote in self.all():
            from flashdepot.net.fetch import offline  # noqa: PLC0415  (neither a hit nor a user without remotes asks anything)

            if remote.failure is None and not (offline() and not remote.settings.is_local):
                yield remote

    def not_heard(self) -> dict[str, FlashdepotError | None]:
        """See :class:`NoRemotes`."""
        usable = {remote.name for remote in self.usable()}
        return {remote.name: remote.failure for remote in self.all() if remote.name not in usable}
