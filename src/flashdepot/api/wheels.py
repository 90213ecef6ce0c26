"""Wheels: the catalog of all that exist, the choice among them, and pinning it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from flashdepot.api.acquire import SILENT
from flashdepot.catalog import CATALOG_FOLDER, Catalog, load_catalog
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, UsageError, not_one_of
from flashdepot.events import Events
from flashdepot.host import wheel_facts
from flashdepot.host.probe import this_platform
from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import Origin, Plan, WheelRequest
from flashdepot.model.diagnosis import Command, Diagnosis, Reasons
from flashdepot.model.environment import NO_TORCH
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import joined
from flashdepot.model.request import LibraryRequest
from flashdepot.model.wheel import COMMUNITY, DEFAULT_SOURCES, FLASH_ATTN, INDEX, OFFICIAL, OURS
from flashdepot.resolve.facts import Given, NamedFacts, facts_of
from flashdepot.resolve.plan import plan_for

if TYPE_CHECKING:
    from flashdepot.catalog.refresh import RefreshOutcome
    from flashdepot.resolve.lock import Lock, LockedName
    from flashdepot.resolve.plan import Help
    from flashdepot.wheel import Name


def resolve(
    request: WheelRequest | None = None,
    library: LibraryRequest | None = None,
    *,
    host: HostRecord | None = None,
    depot: Depot,
    events: Events = SILENT,
) -> Plan:
    """What there is for an environment: published wheels, stored libraries, and what could be built.

    :param request: the facts of the environment and what may be taken; without it, those of ``host``.
    :param library: what our library must have.
    :param host: the machine that would compile; this one when it is not given.
    :raises UsageError: for an upstream or a selection that is not known.
    """
    host = host or wheel_facts()
    request = request or WheelRequest(facts_of(host))
    return plan_for(request, library or LibraryRequest(), host, depot, events.warn)


class Question(msgspec.Struct, frozen=True):
    """What the resolver is asked, in the words of the command line, so that it can be printed as a command again.

    ``depot`` is the folder that somebody named, if somebody did.
    """

    given: Given = Given()
    version: str | None = None
    distribution: str = FLASH_ATTN
    sources: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    profile: str | None = None
    depot: Path | None = None

    def ask(self, library: LibraryRequest, depot: Depot, events: Events) -> Plan:
        """The answer; :raises UsageError: for a value that cannot be understood."""
        host, facts = self.given.environment()
        if self.given.host is None and host.python is not None:
            from flashdepot.host.python_environment import chosen_environment  # noqa: PLC0415  (not when all is named)

            if said := chosen_environment(host.python):
                events.note(said)
        request = WheelRequest(
            facts=facts,
            distribution=self.distribution.lower().replace("_", "-"),
            version=self.version or "",
            sources=(sources_named(self.sources, depot) or DEFAULT_SOURCES) | (frozenset(self.allow) & {COMMUNITY}),
            allow_uncertain="uncertain" in self.allow,
        )
        return resolve(request, library, host=host, depot=depot, events=events)

    def command(self, verb: str = "resolve") -> Command:
        """The command that asks it again."""
        given = self.given
        about = {"host": given.host, "python": given.python, "version": self.version}
        other = self.distribution if self.distribution != FLASH_ATTN else None
        choice = {"distribution": other, "source": self.sources, "allow": self.allow, "profile": self.profile}
        return Command(verb, {**_spelled(given.named), **about, **choice, "depot": self.depot})

    def with_help(self, helped: Help) -> Command:
        """The command with the options in their place that help."""
        options = dict(helped.options)
        if "allow" in options:
            options["allow"] = tuple(dict.fromkeys((*self.allow, *options["allow"])))
        facts = {name: value for name, value in options.items() if name in NamedFacts.__struct_fields__}
        others = {name: value for name, value in options.items() if name not in facts}
        return self.command().but(**_spelled(NamedFacts(**facts), set(facts)), **others)

    def telling(self, plan: Plan, verb: str = "resolve") -> list[str]:
        """The command that tells the facts that are missing, by examples; that for a PyTorch that is missing here; or none."""
        if plan.missing:
            return [" ".join((str(self.command(verb)), *plan.missing))]
        if plan.facts.torch == NO_TORCH and self.given.host is None and self.given.named.torch is None:
            from flashdepot.diagnose.python_checks import command_for_torch  # noqa: PLC0415  (few have none)

            host, _ = self.given.environment()
            return [command_for_torch(host.python, host.platform)] if host.python else []
        return []

    def taking(self, plan: Plan) -> str:
        """The command that takes what was decided: here by ``install``, for another machine by a wheel.

        What compiles for long asks first, so it is not answered in advance.
        """
        chosen = plan.chosen
        assert chosen is not None  # noqa: S101  (for mypy)
        candidate, given = chosen.candidate, self.given
        wheel = candidate.wheel
        if given.named == NamedFacts() and given.host is None:
            here = {"python": given.python, "profile": self.profile, "depot": self.depot, "cuda": candidate.cuda}
            if not (self.version or self.sources or self.allow) and self.distribution == FLASH_ATTN:
                return str(Command("install", here))
            if wheel.url:
                named = {"wheel": wheel.url, "sha256": wheel.sha256}
                return str(Command("install", {"python": given.python, "depot": self.depot, **named}))
            return str(Command("install", {**here, "source": (OURS,), "upstream": self.version}))
        if wheel.url and (given.python or not wheel.sha256):  # the record of its release is asked; pip takes any bytes
            return str(Command("install", {"python": given.python, "wheel": wheel.url, "sha256": wheel.sha256}))
        if wheel.url:
            return joined(["pip", "install", f"{wheel.url}#sha256={wheel.sha256}"])
        facts = plan.facts
        there = facts.platform is not None and facts.platform != this_platform()
        machine = {"host": given.host, "driver": given.named.driver, "glibc": given.named.glibc}
        options = {
            "arch": ",".join(str(gpu) for gpu in facts.served(oldest_gpu())) or ",".join(wheel.sass),
            "target": str(facts.platform) if there else None,
            "profile": self.profile,
            "upstream": self.version,
            "depot": self.depot,
            **({} if there else machine),
            "cuda": candidate.cuda,
            "out": "dist",
        }
        return str(Command("wheel", options))


def _spelled(named: NamedFacts, names: Collection[str] = NamedFacts.__struct_fields__) -> dict[str, Any]:
    """Facts as options; that of the C++ ABI has a name for no."""
    found = {name: value for name, value in asdict(named).items() if name in names}
    if "cxx11_abi" in found:
        abi = found.pop("cxx11_abi")
        found |= {"cxx11abi": abi is True, "no_cxx11abi": abi is False}
    return found


def sources_named(named: Iterable[str], depot: Depot | None = None) -> frozenset[str]:
    """Sources as they are compared, those of indexes in one spelling.

    :param depot: whose catalog knows the community's collections; without it none of these has a name.
    :raises UsageError: for what is not a source, or no address of an index.
    """
    known = {OURS, OFFICIAL, COMMUNITY}
    asked = set(named)
    if depot is not None and not known.issuperset(asked):
        known |= {f"{COMMUNITY}:{c.name}" for c in catalog(depot).collections if c.name != OFFICIAL}
    for source in asked - known:
        if not source.startswith(INDEX):
            raise not_one_of(source, "a source", [*sorted(known), *([] if depot else [f"{INDEX}URL"])])
        from flashdepot.resolve.own_indexes import index_source  # noqa: PLC0415

        asked = asked - {source} | {index_source(source)}
    return frozenset(asked)


def catalog(depot: Depot, events: Events = SILENT) -> Catalog:
    """Every published wheel that is known; what is damaged is a warning."""
    loaded = load_catalog(depot.root / CATALOG_FOLDER)
    for note in loaded.notes:
        events.warn(note)
    return loaded


def update_catalog(
    names: Iterable[str], indexes: Iterable[str], *, depot: Depot, events: Events = SILENT
) -> Iterator[RefreshOutcome]:
    """Ask sources what they publish today, and keep what they answer; yields as they do.

    :param names: of the sources; all without one.
    :param indexes: package indexes, as ``[NAME=]URL``, that are asked and remembered.
    :raises UsageError: for a source that is not known.
    :raises NetworkError: when the network is forbidden, or none of several can be reached.
    """
    from flashdepot.catalog.refresh import Source, read_sources, refresh, remember  # noqa: PLC0415

    folder = depot.root / CATALOG_FOLDER
    added = {source.name: source for source in map(Source.index, indexes)}
    known = {source.name: source for source in read_sources(folder)} | added
    asked = dict.fromkeys((*names, *added))
    if unknown := [name for name in asked if name not in known]:
        hint = "Add a package index: flashdepot catalog update --index NAME=URL"
        raise not_one_of(unknown[0], "a source", known, hint=hint)
    depot.layout.prepare()
    for outcome in refresh([known[name] for name in asked or known], catalog(depot, events), folder):
        if outcome.source in added and not outcome.error:
            remember(folder, added[outcome.source])
        yield outcome


def check_lock(request: WheelRequest, path: Path, names: Sequence[Name] = ()) -> tuple[Lock, Reasons]:
    """A lock, and what speaks against using it where it is asked about.

    :param names: what it must pin as well.
    :raises UsageError: when it cannot be used.
    """
    from flashdepot.resolve.lock import judge_lock, read_lock  # noqa: PLC0415

    found = read_lock(path)
    return found, (*judge_lock(found, request), *_judge_names(found.names, names))


def _judge_names(pins: Sequence[LockedName], names: Sequence[Name]) -> Iterator[Diagnosis]:
    """What speaks against the names of a lock: one is asked for that it lacks, or this flashdepot makes another wheel."""
    wanted = {name.distribution for name in names}
    if not pins and not wanted:
        return
    from flashdepot.wheel import NAMES, pin_names  # noqa: PLC0415  (few locks have names)

    every = sorted(wanted | {pin.distribution for pin in pins} & {*NAMES})
    made = {pin.distribution: pin for pin in pin_names([NAMES[name] for name in every])}
    for name in sorted(wanted | {pin.distribution for pin in pins}):
        pinned = next((pin for pin in pins if pin.distribution == name), None)
        ours = made.get(name)
        if pinned != ours:
            has, wants = (pin.filename if pin else "no wheel of it" for pin in (pinned, ours))
            text = f"It pins {has}, and this flashdepot makes {wants}{', of other bytes' if has == wants else ''}."
            yield Diagnosis.misfit(
                "names", wants, has, text, Command("lock", {"upgrade": True, "names": ",".join(every)})
            )


def lock(
    plan: Plan, path: Path | None = None, *, accept_unverified: bool = False, names: Sequence[Name] | None = None
) -> Lock | None:
    """Pin what was decided, by address and SHA-256; ``None`` when nothing was.

    :param path: the file to write; ``flashdepot.lock`` in this folder when it is not given.
    :param accept_unverified: pin the address of a wheel whose digest is not known.
    :param names: pin the small wheels of these too; those of the lock that is there when it is not given.
    :raises IncompatibleError: when it must be compiled first, so that there is nothing yet to pin, or is not ours and
        there are names.
    :raises IntegrityError: when its digest is not known, and that was not accepted.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    if plan.chosen is None:
        return None
    from flashdepot.resolve.lock import LOCK_NAME, lock_decision, read_lock, write_lock  # noqa: PLC0415
    from flashdepot.wheel import NAMES, pin_names  # noqa: PLC0415

    path = path or Path(LOCK_NAME)
    if names is None:
        with contextlib.suppress(UsageError):
            names = [NAMES[pin.distribution] for pin in read_lock(path).names if pin.distribution in NAMES]
    made = lock_decision(plan.chosen, plan.request, accept_unverified=accept_unverified)
    if names:
        if made.origin is not Origin.DEPOT and not made.wheel.source.startswith(INDEX):
            raise IncompatibleError(
                f"{made.wheel.filename} is not flashdepot's, and {' and '.join(n.distribution for n in names)} only work with ours.",
                hint="Choose ours: --source ours",
            )
        made = msgspec.structs.replace(made, names=pin_names(names))
    write_lock(path, made)
    return made
