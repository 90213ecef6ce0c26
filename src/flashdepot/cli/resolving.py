"""What ``resolve`` and ``lock`` share: from options to facts, candidates, and a decision."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import asdict

from flashdepot import api
from flashdepot.api.given import Given
from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.cli.common import named_depot, open_depot, options
from flashdepot.cli.options import with_project
from flashdepot.errors import UsageError, did_you_mean
from flashdepot.events import Events
from flashdepot.host.probe import this_platform
from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import (
    BANDWIDTH,
    COMMUNITY,
    DEFAULT_SOURCES,
    FLASH_ATTN,
    INDEX,
    OFFICIAL,
    OURS,
    PIP,
    Origin,
    WheelRequest,
)
from flashdepot.model.diagnosis import Command
from flashdepot.model.limits import parse_size
from flashdepot.resolve.facts import NamedFacts
from flashdepot.resolve.plan import Help, Resolution

choice_options = options(
    click.option(
        "--version", metavar="2.8.3", help="flash-attn version: 2.8.3, 2.8, '>=2.7,<2.8'.  [default: the newest]"
    ),
    click.option(
        "--distribution",
        metavar="NAME",
        default="flash-attn",
        show_default=True,
        help="Package name; the other one is flash-attn-3.",
    ),
    click.option(
        "--source",
        "sources",
        metavar="SOURCE",
        multiple=True,
        help="Only from these: ours, official, community, community:NAME, pip, index:URL (repeatable).  [default: ours, official]",
    ),
    click.option(
        "--allow",
        type=click.Choice([COMMUNITY, "uncertain"]),
        multiple=True,
        help="Also take community wheels, or wheels that may not fit (repeatable).",
    ),
    click.option("--profile", metavar="NAME", help="What our library must contain, as for 'flashdepot get'."),
    click.option("--bandwidth", metavar="12MB", help="Download speed in bytes per second.  [default: 12.5MB]"),
)


class Asked(msgspec.Struct, frozen=True):
    """The values of the options of an environment, :data:`choice_options` and ``--depot``, as spelled on the command line."""

    given: Given
    version: str | None
    distribution: str
    sources: tuple[str, ...]
    allow: tuple[str, ...]
    profile: str | None
    bandwidth: str | None
    depot: Path | None


def question(asked: Asked, events: Events) -> Resolution:
    """What the options ask the resolver, with what there is to answer it.

    :raises UsageError: for a value that cannot be understood.
    """
    opened, given = open_depot(asked.depot), asked.given
    host, facts = given.environment()
    if given.host is None and host.python is not None:
        from flashdepot.host.python_environment import told  # noqa: PLC0415  (not when all is named)

        if said := told(host.python):
            events.note(said)
    request = WheelRequest(
        facts=facts,
        distribution=asked.distribution.lower().replace("_", "-"),
        version=asked.version or "",
        sources=_sources(asked.sources, asked.allow, opened.root / CATALOG_FOLDER),
        allow_uncertain="uncertain" in asked.allow,
        bandwidth=parse_size(asked.bandwidth) if asked.bandwidth else BANDWIDTH,
    )
    library = with_project({"profile": asked.profile})
    return api.resolve(request, library, host=host, depot=opened, events=events)


def command_of(asked: Asked, verb: str = "resolve") -> Command:
    """What was asked, as a command that asks it again."""
    given = asked.given
    return Command(
        verb,
        {
            **_spelled(given.named),
            "host": given.host,
            "python": given.python,
            "version": asked.version,
            "distribution": asked.distribution if asked.distribution != FLASH_ATTN else None,
            "source": asked.sources,
            "allow": asked.allow,
            "profile": asked.profile,
            "bandwidth": asked.bandwidth,
            "depot": named_depot(),
        },
    )


def command_with(asked: Asked, helped: Help) -> Command:
    """What was asked with the options in their place that help."""
    options = dict(helped.options)
    if "allow" in options:
        options["allow"] = tuple(dict.fromkeys((*asked.allow, *options["allow"])))
    facts = {name: value for name, value in options.items() if name in NamedFacts.__struct_fields__}
    others = {name: value for name, value in options.items() if name not in facts}
    return command_of(asked).but(**_spelled(NamedFacts(**facts), set(facts)), **others)


def _spelled(named: NamedFacts, names: Collection[str] = NamedFacts.__struct_fields__) -> dict[str, Any]:
    """Facts as options; that of the C++ ABI has a name for no."""
    found = {name: value for name, value in asdict(named).items() if name in names}
    if "cxx11_abi" in found:
        abi = found.pop("cxx11_abi")
        found |= {"cxx11abi": abi is True, "no_cxx11abi": abi is False}
    return found


def taking(asked: Asked, resolution: Resolution) -> str:
    """The command that takes what was decided: here by ``install``, for another machine by a wheel."""
    chosen = resolution.decision.chosen
    assert chosen is not None  # noqa: S101  (for mypy)
    candidate, given = chosen.candidate, asked.given
    origin, wheel = candidate.origin, candidate.wheel
    if origin is Origin.PIP:
        return f"pip install --no-build-isolation {wheel.distribution}=={wheel.version}"
    compiles = {"cuda": candidate.cuda, "yes": origin.compiles}
    if given.named == NamedFacts() and given.host is None:
        here = {"python": given.python, "profile": asked.profile, "depot": named_depot()}
        if not (asked.version or asked.sources or asked.allow) and asked.distribution == FLASH_ATTN:
            return str(Command("install", {**here, **compiles}))
        if wheel.url:
            named = {"wheel": wheel.url, "sha256": wheel.sha256}
            return str(Command("install", {"python": given.python, "depot": named_depot(), **named}))
        return str(Command("install", {**here, "source": (OURS,), "upstream": asked.version, **compiles}))
    if wheel.url:
        return shlex.join(["pip", "install", f"{wheel.url}#sha256={wheel.sha256}" if wheel.sha256 else wheel.url])
    platform = resolution.request.facts.platform
    there = platform is not None and platform != this_platform()
    machine = {"host": given.host, "driver": given.named.driver, "glibc": given.named.glibc}
    options = {
        "arch": ",".join(str(gpu) for gpu in resolution.request.facts.served(oldest_gpu())) or ",".join(wheel.sass),
        "target": str(platform) if there else None,
        "profile": asked.profile,
        "upstream": asked.version,
        "depot": named_depot(),
        **({} if there else machine),
        **compiles,
        "out": "dist",
    }
    return str(Command("wheel", options))


def sources_named(named: tuple[str, ...]) -> tuple[str, ...]:
    """Sources as they are compared: the addresses of indexes in one spelling.

    :raises UsageError: for what is no address of an index.
    """
    if not any(source.startswith(INDEX) for source in named):
        return named
    from flashdepot.resolve.own_indexes import index_source  # noqa: PLC0415

    return tuple(index_source(source) if source.startswith(INDEX) else source for source in named)


def _sources(named: tuple[str, ...], allowed: tuple[str, ...], catalog: Path) -> frozenset[str]:
    known = {OURS, OFFICIAL, COMMUNITY, PIP}
    named = sources_named(named)
    if not known.issuperset(named):
        known |= {f"{COMMUNITY}:{c.name}" for c in load_catalog(catalog).collections if c.name != OFFICIAL}
    for source in named:
        if source not in known and not source.startswith(INDEX):
            suggestion = did_you_mean(source, known)
            raise UsageError(f"'{source}' is not a source: there are {', '.join(sorted(known))}.{suggestion}")
    return frozenset(named or DEFAULT_SOURCES) | (frozenset(allowed) & {COMMUNITY})
