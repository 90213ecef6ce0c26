"""A build of fake sources on a farm: ``python -m support.farm_build ORDER`` prints what came out as JSON, our own error too.

ORDER is JSON: ``folder`` with ``src/*.src``, each of which becomes an action that is compiled by fake_compiler.py;
``farm`` and ``cuda``, or ``jobs`` to run so many at once on this machine; and perhaps ``sizes`` (bytes by name), ``needs`` (names by name), ``tools`` and ``site`` (its fields), ``keep_going``.
"""

import json
import os
import sys
from pathlib import Path

from flashdepot.build.engine import Engine, Executor
from flashdepot.build.farm import FarmExecutor
from flashdepot.build.farm_worker import Site
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.build.schedule import History
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError
from flashdepot.events import BuildProgress
from flashdepot.model.limits import Farm, Limits
from flashdepot.model.recipe import Action, Tool
from support.recipes import TOOLS, architectures, make_recipe

FAKE = Path(__file__).with_name("fake_compiler.py")


class Notes(BuildProgress):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def main(order: dict) -> dict:
    """Build."""
    folder, notes, recipe = Path(order["folder"]), Notes(), make_recipe()
    src = folder / "src"
    depot = Depot(folder / "depot")
    history = History(depot.layout.estimates)
    actions = [
        Action(
            path.stem,
            "src",
            path.name,
            (sys.executable, str(FAKE)),
            TOOLS,
            needs=order.get("needs", {}).get(path.stem, {}),
        )
        for path in sorted(src.glob("*.src"), key=lambda path: path.stem in order.get("needs", {}))
    ]
    for action in actions:
        history.add(action, recipe, 1.0, order.get("sizes", {}).get(action.name, 10**9))
    history.save()
    files = {path.name: path.read_bytes for path in src.iterdir()}
    site = {"families": (), "tools": (), "sass": architectures("80"), "variables": {}, "cuda": order["cuda"]}
    if named := order.get("tools"):
        site["tools"] = tuple(Tool(*row) for row in named)
    with depot.workspace() as work:
        executor: Executor
        if "jobs" in order:
            executor = LocalExecutor(PlaceNames((("src", src),)), {}, os.environ, Limits(order["jobs"]), work)
        else:
            executor = FarmExecutor(
                Farm(order["farm"]),
                Site(**{**site, **order.get("site", {})}),
                {"src": files, "native": {}, "generated": {}},
                PlaceNames((("src", src),)),
                Limits(),
                work,
                notes.note,
            )
        engine = Engine(depot, recipe, executor, {}, notes, work, keep_going=order.get("keep_going", False))
        try:
            outcome = engine.run(actions)
        except FlashdepotError as error:
            kept = sorted(record.name for path in depot.actions.files() if (record := depot.actions.read(path)))
            return {
                "error": error.message,
                "hint": error.hint,
                "code": error.exit_code,
                "kept": kept,
                "notes": notes.said,
            }
    return {
        "compiled": sorted(outcome.compiled),
        "digests": {name: record.object.digest for name, record in outcome.actions.items()},
        "workers": dict(outcome.workers),
        "notes": notes.said,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
