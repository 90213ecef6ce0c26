"""A build of the tests' own: the compiler is ``support/fake_compiler.py``, which does what its sources say."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.build.schedule import History
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress, Snapshot
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action, Tool
from flashdepot.model.selection import Unit
from support.recipes import TOOLS, make_recipe

FAKE = Path(__file__).parents[1] / "support" / "fake_compiler.py"
GB = 10**9


class Notes(BuildProgress):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.fractions: list[float] = []
        self.states: list[Snapshot] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def update(self, state: Snapshot) -> None:
        self.fractions.append(state.fraction)
        self.states.append(state)


@dataclass
class Bench:
    """A folder of sources, a depot, and a compiler that does what the sources say."""

    folder: Path
    tools: tuple[Tool, ...] = TOOLS
    notes: Notes = field(default_factory=Notes)

    @property
    def depot(self) -> Depot:
        return Depot(self.folder / "depot")

    @property
    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def source(self, name: str, text: str = "") -> None:
        (self.folder / "src").mkdir(exist_ok=True)
        (self.folder / "src" / name).write_text(text)
        time.sleep(0.005)  # a file written in the same clock tick as a compiler's start counts as changed

    def build(
        self,
        names: Sequence[str],
        limits: Limits | None = None,
        sizes: dict[str, int] | None = None,
        needs: dict[str, dict[str, str]] | None = None,
        uncounted: tuple[str, ...] = (),
        units: dict[str, Unit] | None = None,
    ) -> BuildOutcome:
        os.environ["FAKE_JOURNAL"] = str(self.folder / "journal")
        history = History(self.depot.layout.estimates)
        recipe = make_recipe()
        command = ("{python}", str(FAKE))
        actions = [
            Action(
                n,
                "src",
                f"{n}.src",
                command,
                self.tools,
                unit=(units or {}).get(n),
                needs=(needs or {}).get(n, {}),
                uncounted=uncounted,
            )
            for n in names
        ]
        for action in actions:
            history.add(action, recipe, 1.0, (sizes or {}).get(action.name, 1))
        history.save()
        places = PlaceNames((("src", self.folder / "src"),))
        limits = limits or Limits(jobs=4, memory=64 * GB)
        with self.depot.workspace() as work:
            executor = LocalExecutor(places, {"python": sys.executable}, dict(os.environ), limits, work)
            going = limits.keep_going
            return Engine(self.depot, recipe, executor, {}, self.notes, work, keep_going=going).run(actions)
