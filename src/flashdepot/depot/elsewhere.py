"""Where other machines keep what they made, as the depot sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from flashdepot.events import Events
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request

if TYPE_CHECKING:
    from flashdepot.depot.store import Depot


class Elsewhere(Protocol):
    """Remotes. Whatever they lack or do wrong is a miss and a warning, and never an error of the caller."""

    def offers(self, request: Request) -> Manifest | None:
        """What :meth:`fetch_library` would fetch; its ``actions`` are left out. Nothing is downloaded."""

    def fetch_library(self, depot: Depot, request: Request, events: Events) -> Manifest | None:
        """Put a library that serves a request into a depot, if there is one."""

    def fetch_recipe(self, depot: Depot, recipe_key: str, events: Events) -> Manifest | None:
        """Put the library of exactly this recipe into a depot, if there is one."""

    def fetch_actions(
        self,
        depot: Depot,
        intents: Collection[str],
        current_digest: Callable[[str], str | None],
        note: Callable[[str], None],
    ) -> None:
        """Put those of some compiler runs into a depot that others have made of inputs with the same digests."""

    def share(self, depot: Depot, manifest: Manifest, events: Events) -> None:
        """Give a library that was made here, and the compiler runs behind it, to those that want it."""


class Nowhere:
    """No remote at all."""

    def offers(self, _request: Request) -> Manifest | None:
        """Nothing."""
        return None

    def fetch_library(self, _depot: Depot, _request: Request, _events: Events) -> Manifest | None:
        """Nothing."""
        return None

    def fetch_recipe(self, _depot: Depot, _recipe_key: str, _events: Events) -> Manifest | None:
        """Nothing."""
        return None

    def fetch_actions(
        self,
        _depot: Depot,
        _intents: Collection[str],
        _current_digest: Callable[[str], str | None],
        _note: Callable[[str], None],
    ) -> None:
        """Put nothing there."""

    def share(self, _depot: Depot, _manifest: Manifest, _events: Events) -> None:
        """Give it to nobody."""
