"""What ``resolve`` and ``lock`` share: from options to facts, candidates, and a decision."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from flashdepot import api
from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.cli.common import host_option, load_host, open_depot, options, python_option
from flashdepot.cli.options import with_project
from flashdepot.errors import UsageError, did_you_mean
from flashdepot.events import Events
from flashdepot.host import wheel_facts
from flashdepot.model.quantities import parse_size
from flashdepot.model.wheel_request import (
    BANDWIDTH,
    COMMUNITY,
    DEFAULT_SOURCES,
    INDEX,
    OFFICIAL,
    OURS,
    PIP,
    WheelRequest,
)
from flashdepot.resolve.facts import NamedFacts, facts_of, override
from flashdepot.resolve.resolution import Resolution

Command = TypeVar("Command", bound=Callable[..., None])

facts_options = options(
    click.option("--torch", metavar="VERSION", help="PyTorch: 2.8.0+cu128, or none.  [default: the environment's]"),
    click.option("--cuda", metavar="12.8|none", help="CUDA version of the PyTorch build."),
    click.option(
        "--cxx11abi/--no-cxx11abi",
        "cxx11_abi",
        default=None,
        help="C++ ABI of the PyTorch build, new or old.",
    ),
    click.option("--python-tag", metavar="3.12|cp312", help="Python version or tag; 3.13t is free-threaded."),
    click.option("--platform", metavar="linux-x86_64", help="Platform, or a wheel's platform tag."),
    click.option("--glibc", metavar="2.31", help="Version of the GNU C library."),
    click.option("--gpu", "gpus", metavar="9.0", multiple=True, help="Compute capability (repeatable)."),
    click.option("--driver", metavar="570.1", help="Version of NVIDIA's driver."),
    python_option,
    host_option,
)
"""What :class:`NamedFacts` is made of, and where the facts come from that are not named."""

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
    """The values of :data:`facts_options`, :data:`choice_options` and ``--depot``, as spelled on the command line."""

    torch: str | None
    cuda: str | None
    cxx11_abi: bool | None
    python_tag: str | None
    platform: str | None
    glibc: str | None
    gpus: tuple[str, ...]
    driver: str | None
    python: str | None
    host_file: Path | None
    version: str | None
    distribution: str
    sources: tuple[str, ...]
    allow: tuple[str, ...]
    profile: str | None
    bandwidth: str | None
    depot: Path | None

    @property
    def facts(self) -> NamedFacts:
        """The facts that were named; ``--gpu 8.0,9.0`` names two."""
        gpus = tuple(part for text in self.gpus for part in text.split(","))
        return NamedFacts(
            self.torch, self.cuda, self.cxx11_abi, self.python_tag, self.platform, self.glibc, gpus, self.driver
        )


def question(asked: Asked, events: Events) -> Resolution:
    """What the options ask the resolver, with what there is to answer it.

    :raises UsageError: for a value that cannot be understood.
    """
    if asked.host_file is not None and asked.python is not None:
        raise UsageError("--python looks at this machine, --host at a saved record: give one of them.")
    opened = open_depot(asked.depot)
    named = asked.python is None and asked.torch is not None and asked.python_tag is not None
    host = load_host(asked.host_file) or wheel_facts(asked.python, environment=not named, gpus=not asked.gpus)
    if asked.host_file is None and host.python is not None:
        from flashdepot.host.python_environment import told  # noqa: PLC0415  (not when all is named)

        if said := told(host.python):
            events.note(said)
    request = WheelRequest(
        facts=override(facts_of(host), asked.facts),
        distribution=asked.distribution.lower().replace("_", "-"),
        version=asked.version or "",
        sources=_sources(asked.sources, asked.allow, opened.root / CATALOG_FOLDER),
        allow_uncertain="uncertain" in asked.allow,
        bandwidth=parse_size(asked.bandwidth) if asked.bandwidth else BANDWIDTH,
    )
    library = with_project({"profile": asked.profile})
    return api.resolve(request, library, host=host, depot=opened, events=events)


def install_options(asked: Asked) -> str | None:
    """The options of ``flashdepot install`` that mean what was asked; ``None`` when that is not about this machine as it is."""
    changed = (asked.facts != NamedFacts(), asked.host_file, asked.version, asked.sources, asked.allow, asked.bandwidth)
    if any(changed) or asked.distribution != "flash-attn":
        return None
    given = {"--python": asked.python, "--profile": asked.profile, "--depot": asked.depot}
    return shlex.join(word for name, value in given.items() if value for word in (name, str(value)))


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
