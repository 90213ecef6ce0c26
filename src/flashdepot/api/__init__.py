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
    from flashdepot.api.environments import InstallRequest, install
    from flashdepot.api.libraries import build, get, link, pull, vendor, wheel
    from flashdepot.api.publishing import index, plan_publish, publish
    from flashdepot.api.sharing import audit, push, sync
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
    "Client": "flashdepot.api.client",
    "Compiling": "flashdepot.model.limits",
    "Environment": "flashdepot.model.environment",
    "Depot": "flashdepot.depot",
    "Events": "flashdepot.events",
    "InstallRequest": "flashdepot.api.environments",
    "LibraryRequest": "flashdepot.model.request",
    "Limits": "flashdepot.model.limits",
    "WheelRequest": "flashdepot.model.candidate",
    "audit": "flashdepot.api.sharing",
    "build": "flashdepot.api.libraries",
    "check": "flashdepot.api.answers",
    "doctor": "flashdepot.api.answers",
    "explain": "flashdepot.api.answers",
    "explain_command": "flashdepot.api.answers",
    "get": "flashdepot.api.libraries",
    "host": "flashdepot.api.answers",
    "index": "flashdepot.api.publishing",
    "install": "flashdepot.api.environments",
    "library_request": "flashdepot.resolve.project",
    "link": "flashdepot.api.libraries",
    "lock": "flashdepot.api.wheels",
    "open_depot": "flashdepot.api.acquire",
    "plan_publish": "flashdepot.api.publishing",
    "publish": "flashdepot.api.publishing",
    "pull": "flashdepot.api.libraries",
    "push": "flashdepot.api.sharing",
    "read_matrix": "flashdepot.publish",
    "resolve": "flashdepot.api.wheels",
    "sync": "flashdepot.api.sharing",
    "vendor": "flashdepot.api.libraries",
    "wheel": "flashdepot.api.libraries",
}
"""Where each name is: imported when it is first asked for, so that a call pays for its own imports and no others."""

__all__ = [
    "Client",
    "Compiling",
    "Depot",
    "Environment",
    "Events",
    "InstallRequest",
    "LibraryRequest",
    "Limits",
    "WheelRequest",
    "audit",
    "build",
    "check",
    "doctor",
    "explain",
    "explain_command",
    "get",
    "host",
    "index",
    "install",
    "library_request",
    "link",
    "lock",
    "open_depot",
    "plan_publish",
    "publish",
    "pull",
    "push",
    "read_matrix",
    "resolve",
    "sync",
    "vendor",
    "wheel",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'flashdepot.api' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)
