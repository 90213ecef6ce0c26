"""Some compiler runs of their own, without a library: their objects, from the depot or compiled now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flashdepot.binary.object_file import require_plain
from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.estimates import History
from flashdepot.build.local import local_executor
from flashdepot.build.places import places
from flashdepot.build.schedule import Outlook
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.families.c_layer import NATIVE
from flashdepot.model.action import Action
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Recipe
from flashdepot.toolchain.choose import Toolchain


def make_objects(
    actions: Sequence[Action],
    sources: Mapping[str, Path],
    recipe: Recipe,
    toolchain: Toolchain,
    depot: Depot,
    folder: Path,
    limits: Limits,
    progress: BuildProgress,
    agree: Callable[[Outlook], None],
) -> list[Path]:
    """The object of every action that no other needs, in the new folder ``folder``, under names that say what it is.

    The compilers see the sources and their own tools, as for every source that nobody vouches for. What was compiled
    stays in the depot; what it has, or a remote has, is not compiled again.

    :param sources: folders by the names that actions have for them.
    :param recipe: of the library that they are for: it says what they are expected to cost.
    :param agree: told what must be compiled, before the first compiler starts; what it raises ends it.
    :raises CompileError: when a compiler refuses.
    """
    work = folder
    for name in ("made", "generated"):
        (work / name).mkdir(parents=True)
    named = places({**sources, "native": NATIVE, "generated": work / "generated"}, {}, toolchain)
    executor = local_executor(actions, named, toolchain, limits, work, progress, foreign=True)
    history = History(depot.root / "estimates.json")
    engine = Engine(
        depot,
        recipe,
        executor,
        toolchain.whole_environment(),
        history,
        progress,
        work / "made",
        keep_going=limits.keep_going,
    )
    agree(engine.foresee(actions))
    outcome = engine.run(actions)
    return put_objects(actions, outcome, depot, work / "objects")


def put_objects(actions: Sequence[Action], outcome: BuildOutcome, depot: Depot, folder: Path) -> list[Path]:
    """The object of every action that no other needs, in a new folder, under names that archives and debuggers show.

    :raises IntegrityError: for one that could make a linker read other files.
    """
    folder.mkdir()
    needed = {need for action in actions for need in action.needs.values()}
    last = [action for action in actions if action.name not in needed]
    objects = [folder / f"{action.name}{action.suffix}" for action in last]
    for action, path in zip(last, objects, strict=True):
        depot.blobs.link_or_copy(outcome.actions[action.name].object.digest, path)
        require_plain(path)
    return objects
