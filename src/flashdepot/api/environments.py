"""flash-attn into a Python environment: chosen, checked, verified there, or undone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.api.libraries import build_need, open_depot, tell_rejected, wheel_of
from flashdepot.depot import Depot
from flashdepot.doctor import Intention, examine
from flashdepot.errors import IncompatibleError
from flashdepot.events import Events
from flashdepot.host import probe
from flashdepot.host.python_environment import told
from flashdepot.install import Installed, WheelFile, install_wheel, recover
from flashdepot.install.choice import Choice, InstallRequest, OwnWheel, ToBuild, choose
from flashdepot.install.inspection import inspect
from flashdepot.install.managed import Keeper, find_keeper, require_free
from flashdepot.install.obstacles import environment_of, require_no_obstacle
from flashdepot.install.pinning import pin
from flashdepot.install.present import present_version
from flashdepot.install.sources import WheelAddress, have_one, have_wheel, require_digest
from flashdepot.model.host import HostRecord
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.limits import Limits
from flashdepot.model.lock import LOCK_NAME
from flashdepot.model.python_environment import Environment
from flashdepot.model.quantities import duration
from flashdepot.resolve.library import LibraryResult

__all__ = ["InstallPlan", "InstallRequest", "InstallResult", "install", "plan_install"]

_ANY = InstallRequest()
_SILENT = Events()


class InstallPlan(msgspec.Struct, frozen=True):
    """What would be installed where. ``keeper`` is the tool that manages the environment's packages, if one does."""

    choice: Choice
    machine: HostRecord
    keeper: Keeper | None

    @property
    def environment(self) -> Environment:
        """The environment of the machine's record."""
        return environment_of(self.machine)

    @property
    def replaces(self) -> str | None:
        """The version of flash-attn that is there."""
        return present_version(self.environment)

    def to_json(self) -> dict[str, Any]:
        """The plan as ``--dry-run --json`` prints it."""
        keeper = self.keeper.name if self.keeper else None
        about = {"python": str(self.environment.executable), "keeper": keeper, "replaces": self.replaces}
        return {"status": "planned", **self.choice.to_json(), **about}


class InstallResult(msgspec.Struct, frozen=True):
    """What was installed: the file, what verified it, and our library in it, if it is ours.

    ``pinned`` says what was written into the lock. ``seconds`` of wall time is what the call took.
    """

    plan: InstallPlan
    wheel: WheelFile
    installed: Installed
    library: LibraryResult | None
    pinned: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        wheel, done, library, keeper = self.wheel, self.installed, self.library, self.plan.keeper
        return {
            "status": "installed",
            "source": wheel.source,
            "library": library.status if library else None,
            "recipe_key": library.manifest.recipe_key if library else None,
            "wheel": {"filename": wheel.path.name, "url": wheel.url, "sha256": wheel.sha256, "size": wheel.size},
            "python": str(self.plan.environment.executable),
            "keeper": keeper.name if keeper else None,
            "version": done.imported.version,
            "replaced": done.replaced,
            "torch": done.imported.torch,
            "module": str(done.imported.module),
            "installer": done.installer,
            "numbers": done.numbers.to_json(),
            "seconds": round(self.seconds, 3),
        }


def plan_install(
    request: InstallRequest = _ANY,
    *,
    python: str | None = None,
    depot: Depot | None = None,
    events: Events = _SILENT,
) -> InstallPlan:
    """Which wheel would be installed into an environment, and why; nothing is changed there.

    :param python: interpreter or folder of the environment; the one that is meant here when it is not given.
    :raises UsageError: when no environment is known, for a contradiction in the request, or a lock that cannot be used.
    :raises IncompatibleError: when nothing fits.
    :raises MissingToolError: when torch or einops is missing there, or the depot lacks what a lock pins.
    """
    depot = depot or open_depot(events=events)
    return _planned(request, probe(python, depot.root), depot, events)


def _planned(request: InstallRequest, machine: HostRecord, depot: Depot, events: Events) -> InstallPlan:
    environment = environment_of(machine)
    if said := told(environment):
        events.note(said)
    arch = LibraryRequest(arch=request.library.arch)
    require_no_obstacle(examine(machine, Intention.INSTALL, arch), environment.executable, events.warn)
    choice = choose(request, machine, depot, events)
    keeper = find_keeper(environment.prefix)
    require_free(keeper, environment.prefix, choice.reference)
    return InstallPlan(choice, machine, keeper)


def inspect_planned(plan: InstallPlan, events: Events = _SILENT) -> None:
    """Check a planned wheel that is on this disk already; :raises FlashdepotError: when it cannot be installed."""
    if isinstance(plan.choice.wheel, WheelFile):
        inspect(plan.choice.wheel, plan.environment, plan.machine, events.warn)


def install(
    request: InstallRequest = _ANY,
    *,
    python: str | None = None,
    depot: Depot | None = None,
    limits: Limits | None = None,
    accept_unverified: bool = False,
    events: Events = _SILENT,
) -> InstallResult:
    """Install flash-attn into an environment that has torch, and check that it works there.

    The wheel is checked before anything changes. Then it is imported in a fresh process and, if there is a GPU, its
    results are compared with float64. If anything fails, the environment is restored. Nothing is compiled unless the
    request says so, or ``events`` agrees.

    :param accept_unverified: take a wheel whose digest nobody has told, and pin it in the folder's lock.
    :raises IntegrityError: when the wheel is not what it says, does not import, or computes wrong numbers.
    :raises CompileError: when it must be compiled and a compiler refuses.
    :raises NetworkError: when it must be fetched and cannot be.

    It raises what :func:`plan_install` raises as well.
    """
    started = time.monotonic()
    depot = depot or open_depot(events=events)
    machine = probe(python, depot.root)
    if recover(environment_of(machine).prefix, events.warn):
        machine = probe(python, depot.root)
    plan = _planned(request, machine, depot, events)
    choice, library = plan.choice, None
    with contextlib.ExitStack() as stack:
        if isinstance(choice.wheel, OwnWheel):
            folder = stack.enter_context(depot.workspace())  # all others need no depot that may be written
            library = _library(choice.wheel, choice.why, request, depot, limits or Limits(), events)
            made = wheel_of(library, choice.wheel.sources, depot, folder)
            wheel = WheelFile(choice.source, made.path, made.sha256, made.size)
        elif isinstance(choice.wheel, WheelAddress):
            accept_unverified = accept_unverified or _accepted(choice.wheel, events)
            choice, wheel = _fetched(choice, depot, accept_unverified=accept_unverified, events=events)
        else:
            wheel = choice.wheel
        done = install_wheel(wheel, plan.machine, on_note=events.warn)
        pins = request.locked is not None or accept_unverified
        pinned = pin(request.locked or Path.cwd() / LOCK_NAME, choice.lock, wheel) if pins else ""
    return InstallResult(plan, wheel, done, library, pinned, time.monotonic() - started)


def _library(
    wheel: OwnWheel, why: str, request: InstallRequest, depot: Depot, limits: Limits, events: Events
) -> LibraryResult:
    """The library of our wheel: the stored one, or one that is built now.

    :raises IncompatibleError: when it must be built, and that was neither asked for nor agreed to.
    """
    if not isinstance(wheel.library, ToBuild):
        return wheel.library
    takes = f"compiling one takes about {duration(wheel.library.seconds)} on this machine"
    if not request.may_compile and not events.confirm(f"{why.capitalize()}; {takes}. Compile it now?"):
        raise IncompatibleError(
            f"There is nothing to install without a compiler: {why}, and {takes}.",
            hint="Compile it: flashdepot install --compile, with the options that were given here.",
        )
    tell_rejected(wheel.library.rejected, events)
    return build_need(wheel.library.need, depot, limits, events, agreed=True)


def _accepted(address: WheelAddress, events: Events) -> bool:
    """Whether to take a wheel whose digest nobody has told; asked where it is not."""
    if address.sha256:
        return False
    question = f"Nobody has told the SHA-256 of {address.filename}: only {address.host} vouches for what it serves."
    return events.confirm(f"{question} Take it, and pin what comes?")


def _fetched(choice: Choice, depot: Depot, *, accept_unverified: bool, events: Events) -> tuple[Choice, WheelFile]:
    """The chosen wheel, or the first of those after it that exists."""
    candidates = [c for c in (choice, *choice.others) if isinstance(c.wheel, WheelAddress)]

    def have(address: WheelAddress) -> WheelFile:
        require_digest(address, accept_unverified=accept_unverified)
        with events.download(address.filename) as progress:
            return have_wheel(address, depot.layout.downloads, progress, events.warn)

    addresses = [c.wheel for c in candidates if isinstance(c.wheel, WheelAddress)]
    number, wheel = have_one(addresses, have, events.warn)
    return candidates[number], wheel
