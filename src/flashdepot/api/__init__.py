"""What flashdepot does, as functions for scripts, notebooks, and its own command line.

Each takes typed requests, says what happens to one :class:`~flashdepot.events.Events`, and returns a typed result or
raises one of :mod:`flashdepot.errors`.

Typical usage::

    from flashdepot import api

    library = api.get(api.library_request(profile="quick", arch="90"), depot=api.open_depot())
    print(library.path / "include" / "flash_attention.h")

The functions are here and not in :mod:`flashdepot` itself, where ``build``, ``wheel``, ``link`` and others are packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashdepot.api.acquire import open_depot
    from flashdepot.api.answers import check, doctor, explain, explain_command, host
    from flashdepot.api.client import Client
    from flashdepot.api.environments import InstallRequest, install, plan_install
    from flashdepot.api.libraries import build, get, link, plan_library, pull, vendor, wheel
    from flashdepot.api.publishing import index, plan_publish, publish
    from flashdepot.api.sharing import audit, push
    from flashdepot.api.wheels import lock, resolve
    from flashdepot.depot import Depot
    from flashdepot.events import Events
    from flashdepot.model.candidate import WheelRequest
    from flashdepot.model.environment import Environment
    from flashdepot.model.limits import Compiling, Limits
    from flashdepot.model.request import LibraryRequest
    from flashdepot.publish import read_matrix
    from flashdepot.resolve.project import library_request

_PLACES = {
    name: f"flashdepot.{module}"
    for module, names in {
        "api.acquire": "open_depot",
        "api.answers": "check doctor explain explain_command host",
        "api.client": "Client",
        "api.environments": "InstallRequest install plan_install",
        "api.libraries": "build get link plan_library pull vendor wheel",
        "api.publishing": "index plan_publish publish",
        "api.sharing": "audit push",
        "api.wheels": "lock resolve",
        "depot": "Depot",
        "events": "Events",
        "model.candidate": "WheelRequest",
        "model.environment": "Environment",
        "model.limits": "Compiling Limits",
        "model.request": "LibraryRequest",
        "publish": "read_matrix",
        "resolve.project": "library_request",
    }.items()
    for name in names.split()
}
"""Where each name is: imported when it is first asked for, so that a call pays for its own imports and no others."""

__all__ = [
    "Client", "Compiling", "Depot", "Environment", "Events", "InstallRequest", "LibraryRequest", "Limits",
    "WheelRequest", "audit", "build", "check", "doctor", "explain", "explain_command", "get", "host", "index",
    "install", "library_request", "link", "lock", "open_depot", "plan_install", "plan_library", "plan_publish",
    "publish", "pull", "push", "read_matrix", "resolve", "vendor", "wheel",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'flashdepot.api' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)
