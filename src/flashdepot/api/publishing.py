"""A package index of our wheels, and publishing all that a matrix file asks for: made, tested, packed, pushed."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot.api.acquire import SILENT, Context, LibraryPlan, acquire, plan_need, remotes_of, wheel_of
from flashdepot.api.sharing import pushed_to, require_reach, stock
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.events import Events, Forecast
from flashdepot.files.user_files import require_folder
from flashdepot.index.page import FILES
from flashdepot.index.site import IndexSite, write_site
from flashdepot.model.index_record import IndexRecord
from flashdepot.model.limits import Compiling
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import Unit
from flashdepot.publish import (
    FAILED,
    PartReport,
    PublishedPart,
    PublishMatrix,
    PublishReport,
    require_own,
    verify_wheel,
)
from flashdepot.remotes.keys import VARIABLE, SigningKey, choose_key
from flashdepot.remotes.push import push
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.resolve.consent import may_compile, require_consent, together
from flashdepot.resolve.library import LibraryResult
from flashdepot.resolve.own_wheel_name import wheel_name
from flashdepot.wheel import Name, build_names
from flashdepot.wheel.builder import build_jax_wheel, jax_wheel_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from flashdepot.api.acquire import How
    from flashdepot.model.request import Need


def index(
    folder: Path,
    wheels: Sequence[Path] = (),
    *,
    url: str = "",
    source: str | None = None,
    names: Sequence[Name] = (),
    jax: bool = False,
    depot: Depot,
    events: Events = SILENT,
) -> IndexSite:
    """A package index in a folder, from which pip and uv install: static files for any web server.

    It holds the wheels that are given, without any those of the depot's libraries or of a remote's, and what it held
    before. The time of what is new is now, or ``SOURCE_DATE_EPOCH``. Its list is signed with this user's key, if there is
    one.

    Typical usage::

        site = api.index(Path("public"), url="https://wheels.example.org/", depot=api.open_depot())

    :param wheels: wheels that :func:`wheel` has written.
    :param url: the address that the folder will be served under, for the commands on its page.
    :param names: the small wheels of these too, which need flash-attn.
    :param jax: the wheel flashdepot-jax of each library too, where no wheels are given.
    :param source: the name of a remote, of which every library that is trusted is taken; the depot keeps them.
    :raises NetworkError: when the remote cannot be read.
    :raises UsageError: for a wheel that is not ours, or something of the user's in the folder; nothing has changed then.
    :raises IntegrityError: for a wheel of the index that is not as it was published; the same.
    :raises IncompatibleError: when there is nothing to put there.
    """
    if wheels and source:
        raise UsageError("An index takes the wheels that are named, or a remote's libraries, not both in one run.")
    remote = remotes_of(depot, events).named(source) if source else None
    if remote is not None:
        require_reach(remote, "Reading")
    with depot.workspace() as work:
        manifests = depot.artifacts.manifests() if remote is None else _libraries_of(remote, depot, folder, events)
        offered = list(wheels) or _wheels_of(manifests, depot, folder, work, events, jax=jax)
        offered += [made.path for made in build_names(names, work)]
        return write_site(folder, offered, url=_base(url), now=_now(), key=_key(events), on_note=events.warn)


def _libraries_of(remote: OpenRemote, depot: Depot, folder: Path, events: Events) -> Iterator[Manifest]:
    """Every library of a remote, in the depot unless the index has its wheel."""
    for statement in stock(remote, depot.artifacts.manifests()):
        try:
            manifest = remote.manifest(statement)
        except IntegrityError as error:
            events.warn(f"The library {statement.summary.recipe_key[:12]} is left out: {error.message}.")
            continue
        if (folder / FILES / wheel_name(manifest)).is_file() or remote.take_library(depot, statement, events):
            yield manifest


def _wheels_of(
    manifests: Iterable[Manifest], depot: Depot, folder: Path, work: Path, events: Events, *, jax: bool
) -> list[Path]:
    """The wheel of each library of a published source, and with ``jax`` that for JAX, made unless the index has it.

    :raises FlashdepotError: why none of them could be made, for an index that has none either.
    """
    found, failed = [], None
    for manifest in manifests:
        place = work / manifest.recipe_key
        try:
            if not (folder / FILES / wheel_name(manifest)).is_file():
                library = LibraryResult("hit", manifest, depot.libraries.materialise(manifest))
                found.append(wheel_of(library, manifest.sources, depot, place).path)
            if jax and not (folder / FILES / jax_wheel_name(manifest)).is_file():
                found.append(build_jax_wheel(manifest, depot.libraries.materialise(manifest), place).path)
        except FlashdepotError as error:
            events.warn(f"The library {manifest.recipe_key[:12]} is left out: {error.message}")
            failed = error
    if failed is not None and not found and not (folder / FILES).is_dir():
        raise failed
    return found


def _key(events: Events) -> SigningKey | None:
    settings = UserSettings.of_this_user()
    if settings.own_keys() or os.environ.get(VARIABLE):
        return choose_key(settings)
    events.note("There is no key to sign the index with. Make one: flashdepot keys new")
    return None


def _base(url: str) -> str:
    """The address with a slash at its end; :raises UsageError: for one that a browser does not open."""
    if not url:
        return ""
    try:
        return IndexRecord((), f"{url.rstrip('/')}/").url
    except ValueError as error:
        raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def _now() -> str:
    """The time as PEP 700 spells it. ``SOURCE_DATE_EPOCH`` (reproducible-builds.org) has another in its place."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    utc = dt.timezone.utc
    now = dt.datetime.fromtimestamp(int(epoch), utc) if epoch.isdecimal() else dt.datetime.now(utc)
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"


class PlannedPart(msgspec.Struct, frozen=True):
    """A part, what it needs, and the plan for it; or why it cannot be made."""

    part: PublishedPart
    need: Need | None = None
    plan: LibraryPlan | None = None
    problem: FlashdepotError | None = None

    @property
    def forecast(self) -> Forecast | None:
        """What would be compiled for it, if anything."""
        return self.plan.forecast if self.plan is not None else None


def plan_publish(matrix: PublishMatrix, **how: Unpack[How]) -> list[PlannedPart]:
    """What :func:`publish` would have to compile for each part; nothing is fetched, compiled or written."""
    return _planned(matrix.parts, Context(**how))


def _planned(parts: Sequence[PublishedPart], context: Context, *, foreseen: bool = True) -> list[PlannedPart]:
    """What each part takes after those before it: the systems share device code."""
    planned, made = list[PlannedPart](), defaultdict[object, set[Unit]](set)
    for part in parts:
        need, plan = None, None
        try:
            need = context.need(part.request, for_wheel=True)
            if foreseen:
                request = need.request
                shared = made[str((need.sources, request.selection.features, request.gpus, need.cuda))]
                plan = plan_need(need, context, exactly=True, made=frozenset(shared))
                shared |= request.selection.units
            planned.append(PlannedPart(part, need, plan))
        except FlashdepotError as error:
            planned.append(PlannedPart(part, need, problem=error))
    return planned


def publish(
    matrix: PublishMatrix,
    *,
    out: Path | None = None,
    may_push: bool = True,
    on_part: Callable[[PartReport], None] = lambda _: None,
    **how: Unpack[How],
) -> PublishReport:
    """Make every part of a matrix: its library, a wheel of it that is verified, both where others find them.

    What exists is used again, whatever was stopped before: a second run continues where the first was. A part that fails
    does not keep the others from being made; the report, which is also kept next to the wheels, has what stopped it.

    Typical usage::

        report = api.publish(api.read_matrix(Path("publish.toml")), depot=api.open_depot())
        sys.exit(report.exit_code)

    :param out: the folder of the wheels, in place of the file's.
    :param may_push: whether remotes are written to; for jobs that must not.
    :param on_part: called with each part when it has ended.
    :raises UsageError: when a remote that the file names is not there, there is no key to sign with, or something of the
        user's is in the way. Nothing has been made then.
    :raises ConsentError: when compiling all parts takes longer than two minutes, and nobody has said yes to that.
    """
    context = Context(**how)
    depot, events = context.depot, context.events
    out = (out or matrix.out).absolute()
    require_folder(out, "--out DIR")
    require_own(out)
    remotes = remotes_of(depot, events)
    targets: list[OpenRemote] = []
    if may_push:
        targets = [remotes.named(name) for name in matrix.remotes] or pushed_to(remotes)
    signs = not all(remote.settings.unsigned for remote in targets)
    key = choose_key(UserSettings.of_this_user()) if signs else None
    # What is built goes where it is to go once it is verified, and not before.
    context = replace(context, depot=Depot(depot.root, events.warn, remotes.only_read()))
    asks = may_compile(context.limits)[0] is not Compiling.ALWAYS
    planned = _planned(matrix.parts, context, foreseen=asks)
    forecasts = list(filter(None, (one.forecast for one in planned)))
    if forecasts:  # one yes for all parts together, before the first begins
        require_consent(together(forecasts), context.limits, events)
        context = replace(context, limits=replace(context.limits, build=Compiling.ALWAYS))
    report = PublishReport(matrix, out, tuple(map(PartReport, matrix.parts)), key.public.name if key else "")
    for number, one in enumerate(planned):
        done = _make(one, out, targets, key, context)
        report = replace(report, parts=(*report.parts[:number], done, *report.parts[number + 1 :]))
        report.write()
        on_part(done)
    return _with_names_and_index(report, context)


def _make(
    planned: PlannedPart, out: Path, targets: Sequence[OpenRemote], key: SigningKey | None, context: Context
) -> PartReport:
    started = time.monotonic()
    done, need = PartReport(planned.part), planned.need
    try:
        if need is None:
            raise planned.problem or FlashdepotError(f"{planned.part.name} was not planned.")
        library = acquire(need, context, exactly=True)
        done = replace(
            done,
            status=library.status,
            recipe_key=library.manifest.recipe_key,
            compiled=library.compiled,
            reused=library.reused,
        )
        made = wheel_of(library, need.sources, context.depot, out)
        done = replace(done, wheel=made.path.name, sha256=made.sha256, size=made.size)
        verify_wheel(made.path, library.manifest)
        done = replace(done, verified=True)
        for remote in targets:
            require_reach(remote, "Pushing to")
            signer = None if remote.settings.unsigned else key
            sent = push(remote, context.depot, [library.manifest], context.events, signer)
            done = replace(done, pushed={**done.pushed, remote.name: sent})
    except FlashdepotError as error:
        done = replace(done, status=FAILED, problem=error)
    return replace(done, seconds=time.monotonic() - started)


def _with_names_and_index(report: PublishReport, context: Context) -> PublishReport:
    matrix = report.matrix
    wheels = [report.out / part.wheel for part in report.parts if part.verified]
    if wheels:
        try:
            small = build_names(matrix.names, report.out)
            report = replace(report, names={made.path.name: made.sha256 for made in small})
            if matrix.index is not None:
                wheels += [made.path for made in small]
                site = index(matrix.index, wheels, url=matrix.url, depot=context.depot, events=context.events)
                report = replace(report, index=str(site.path))
        except FlashdepotError as error:
            report = replace(report, problem=error)
    report.write()
    return report
