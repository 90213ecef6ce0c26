"""flash-attn into a Python environment: chosen, checked, verified there, or undone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from flashdepot.api.acquire import Context, LibraryPlan, acquire, plan_need, wheel_of
from flashdepot.depot import Depot
from flashdepot.diagnose.case import Intention
from flashdepot.diagnose.examine import examine
from flashdepot.events import Events
from flashdepot.host import probe
from flashdepot.host.python_environment import chosen_environment
from flashdepot.install.change import recover
from flashdepot.install.installation import Installed, install_names, install_wheel
from flashdepot.install.present import (
    Keeper,
    environment_of,
    find_keeper,
    inspect,
    present_version,
    require_free,
    require_no_obstacle,
)
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.wheel import IMPORTED
from flashdepot.resolve.choice import Choice, InstallRequest, OwnWheel, choose, fetch_chosen, settle
from flashdepot.resolve.library import LibraryResult
from flashdepot.resolve.lock import LOCK_NAME, read_lock
from flashdepot.resolve.wheel_files import WheelAddress, WheelFile, pin
from flashdepot.wheel import Name, require_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from flashdepot.api.acquire import How

__all__ = ["InstallPlan", "InstallRequest", "InstallResult", "install", "plan_install"]

_ANY = InstallRequest()


class InstallPlan(msgspec.Struct, frozen=True):
    """What would be installed where. ``keeper`` is the tool that manages the environment's packages, if one does.

    ``library`` is the plan for the library in our wheel; ``None`` for another wheel.
    """

    choice: Choice
    machine: HostRecord
    keeper: Keeper | None
    library: LibraryPlan | None = None

    def __repr__(self) -> str:
        return f"<InstallPlan: a wheel of {self.choice.source} into {self.environment.prefix}, {self.choice.why}>"

    @property
    def environment(self) -> PythonEnvironment:
        """The environment of the machine's record."""
        return environment_of(self.machine)

    @property
    def replaces(self) -> str | None:
        """The version of flash-attn that is there."""
        return present_version(self.environment)

    @property
    def adds(self) -> list[str]:
        """What flash-attn requires and the environment lacks."""
        return [name for name in IMPORTED if name not in self.environment.packages]

    def to_json(self) -> dict[str, Any]:
        """The plan as ``--dry-run --json`` prints it."""
        keeper = self.keeper.name if self.keeper else None
        about: dict[str, Any] = {
            "python": str(self.environment.executable),
            "keeper": keeper,
            "replaces": self.replaces,
            "adds": self.adds,
        }
        if self.library is not None:
            found = self.library.found
            about |= {"must_build": found is None, "recipe_key": found.recipe_key if found else None}
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
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<InstallResult flash-attn {self.installed.imported.version} in {self.plan.environment.prefix}>"

    def to_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        wheel, done, library, keeper = self.wheel, self.installed, self.library, self.plan.keeper
        return {
            "status": "installed" if done.installer else "unchanged",
            "source": wheel.source,
            "library": library.status if library else None,
            "recipe_key": library.manifest.recipe_key if library else None,
            "wheel": {"filename": wheel.path.name, "url": wheel.url, "sha256": wheel.sha256, "size": wheel.size},
            "python": str(self.plan.environment.executable),
            "keeper": keeper.name if keeper else None,
            "version": done.imported.version,
            "replaced": done.replaced,
            "added": list(done.added),
            "torch": done.imported.torch,
            "module": str(done.imported.module),
            "installer": done.installer,
            "numbers": asdict(done.numbers),
            **({"names": list(self.names)} if self.names else {}),
            "seconds": round(self.seconds, 3),
        }


def plan_install(request: InstallRequest = _ANY, *, python: str | None = None, **how: Unpack[How]) -> InstallPlan:
    """Which wheel would be installed into an environment, and why; nothing is changed there.

    :param python: interpreter or folder of the environment; the one that is meant here when it is not given.
    :raises UsageError: when no environment is known, for a contradiction in the request, or a lock that cannot be used.
    :raises IncompatibleError: when nothing fits.
    :raises MissingToolError: when torch is missing there, or the depot lacks what a lock pins.
    """
    context = Context(**how)
    plan = _planned(request, probe(python, context.depot.root), context.depot, context.events)
    wheel = plan.choice.wheel
    if isinstance(wheel, WheelFile):  # it is on this disk already
        inspect(wheel, plan.environment, plan.machine, context.events.warn)
    return replace(plan, library=plan_need(wheel.library, context)) if isinstance(wheel, OwnWheel) else plan


def _planned(request: InstallRequest, machine: HostRecord, depot: Depot, events: Events) -> InstallPlan:
    environment = environment_of(machine)
    if said := chosen_environment(environment):
        events.note(said)
    arch = LibraryRequest(arch=request.library.arch)
    require_no_obstacle(examine(machine, Intention.INSTALL, arch), environment.executable, events.warn)
    choice = settle(choose(request, machine, depot, events), depot, events)
    keeper = find_keeper(environment.prefix)
    require_free(keeper, environment.prefix, choice.reference)
    return InstallPlan(choice, machine, keeper)


def install(
    request: InstallRequest = _ANY,
    *,
    python: str | None = None,
    accept_unverified: bool = False,
    names: Sequence[Name] = (),
    **how: Unpack[How],
) -> InstallResult:
    """Install flash-attn into an environment that has torch, and check that it works there.

    The wheel is checked before anything changes. Then it is imported in a fresh process and, if there is a GPU, its
    results are compared with float64. If anything fails, the environment is restored. Compiling for longer than two
    minutes needs a yes of ``limits`` or ``events``.

    :param names: what else to install: small wheels under these names, over this flash-attn; with those of the lock.
    :param accept_unverified: take a wheel whose digest is not published, and pin it in the folder's lock.
    :raises IntegrityError: when the wheel is not what it says, does not import, or computes wrong numbers.
    :raises CompileError: when it must be compiled and a compiler refuses.
    :raises NetworkError: when it must be fetched and cannot be.

    It raises what :func:`plan_install` raises as well.
    """
    started, context = time.monotonic(), Context(**how)
    depot, events = context.depot, context.events
    machine = probe(python, depot.root)
    if recover(environment_of(machine).prefix, events.warn):
        machine = probe(python, depot.root)
    plan = _planned(request, machine, depot, events)
    if request.locked is not None:
        pinned_names = require_names(read_lock(request.locked).names)
        names = [*pinned_names, *(name for name in names if name not in pinned_names)]
    choice, library = plan.choice, None
    with contextlib.ExitStack() as stack:
        if isinstance(choice.wheel, OwnWheel):
            folder = stack.enter_context(depot.workspace())  # all others need no depot that may be written
            events.note(f"Installing our wheel: {choice.why}.")
            need = choice.wheel.library
            library = acquire(need, context)
            sources = library.manifest.sources if isinstance(need, str) else need.sources
            made = wheel_of(library, sources, depot, folder)
            wheel = WheelFile(choice.source, made.path, made.sha256, made.size)
        elif isinstance(choice.wheel, WheelAddress):
            address = choice.wheel
            if not address.sha256 and not accept_unverified:
                known = f"No SHA-256 is known for {address.filename}: only {address.host} says what it should be."
                accept_unverified = bool(events.confirm(f"{known} Take it, and pin what comes?"))
            choice, wheel = fetch_chosen(choice, depot, events, accept_unverified=accept_unverified)
        else:
            wheel = choice.wheel
        done = install_wheel(wheel, plan.machine, events)
        small: tuple[str, ...] = ()
        if names:
            small = install_names(names, plan.environment, stack.enter_context(depot.workspace()), events.warn)
        pins = request.locked is not None or accept_unverified
        pinned = pin(request.locked or Path.cwd() / LOCK_NAME, choice.lock, wheel) if pins else ""
    return InstallResult(plan, wheel, done, library, pinned, time.monotonic() - started, small)
