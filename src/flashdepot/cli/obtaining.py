"""What ``get``, ``wheel`` and ``install`` share: from options to a library, out of the depot or built."""

from __future__ import annotations

from pathlib import Path

from flashdepot.cli import options as o
from flashdepot.cli.common import load_host, say
from flashdepot.depot import Depot
from flashdepot.host import runtime_facts
from flashdepot.resolve.library import Need, Result, Wish, from_depot, understand


def need_of(wish: Wish, host_file: Path | None, depot: Depot, *, quiet: bool) -> Need:
    """What was asked for on the command line, in the project's file, and by the machine."""
    need = understand(o.with_project(wish), load_host(host_file) if host_file else runtime_facts(), depot)
    if need.note and not quiet:
        say(need.note)
    return need


def obtain_library(
    need: Need, depot: Depot, jobs: int | None, memory: str | None, *, quiet: bool, verbose: bool
) -> Result:
    """A stored library that serves, else one that is built now."""
    result, rejected = from_depot(need, depot)
    if result is None:
        from flashdepot.cli.building import build_for, limits, tell_rejected  # noqa: PLC0415  (a hit needs none of it)

        if not quiet:
            tell_rejected(rejected)
        result = build_for(need, depot, limits(jobs, memory), quiet=quiet, verbose=verbose)
    return result
