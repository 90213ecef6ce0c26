"""A family joins by its folder and its entry in ``FAMILIES``; nothing else knows of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from build.recipes import KIT, make_recipe
from depot.depot_factories import store_library
from families.toy.family import UNIT, Toy
from flashdepot import families
from flashdepot.build.engine import Engine
from flashdepot.build.estimates import History, costs, prior
from flashdepot.build.library import BuildPlan
from flashdepot.build.local import LocalExecutor
from flashdepot.build.names import PlaceNames
from flashdepot.depot import Depot
from flashdepot.events import Silent
from flashdepot.families import family_of
from flashdepot.families.config_header import config_header
from flashdepot.model.architecture import Architecture
from flashdepot.model.host import Gpu
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import wheel_version
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import Selection
from flashdepot.model.target import Version
from flashdepot.model.upstream import UpstreamId
from flashdepot.resolve import library
from flashdepot.resolve.words import library_request
from flashdepot.upstream import SourceTree
from support.fake_cuda import make_host

TOY = Toy()
ENTRIES = (*families.FAMILIES, TOY)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FAMILIES", ENTRIES)


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    folder = tmp_path / "toy-source"
    folder.mkdir()
    (folder / "kernel.src").write_text("one kernel")
    return TOY.sources.obtain(str(folder), tmp_path / "cache")


@pytest.fixture
def recipe(tree: SourceTree) -> Recipe:
    plain = make_recipe()
    selection = Selection(plain.selection.units | {UNIT}, plain.selection.features)
    flags = TOY.flags(KIT, plain.target.sass, front_end="shared", compress="size")
    upstreams = {**plain.upstreams, "toy": tree.id}
    return replace(plain, upstreams=upstreams, selection=selection, flags={**plain.flags, "toy": flags})


def test_a_request_that_names_it_asks_for_its_kernels_and_its_source(tmp_path: Path) -> None:
    host = replace(make_host(), gpus=(Gpu("NVIDIA H100", Architecture(9, 0), 80 * 10**9),), driver=Version("580"))
    depot = Depot(tmp_path / "depot")
    assert UNIT not in library.understand(LibraryRequest(), host, depot).request.selection.units
    need = library.understand(library_request(families="all"), host, depot)
    assert UNIT in need.request.selection.units
    assert need.request.upstreams["toy"] == UpstreamId("0.1", "a" * 64)
    assert need.sources["toy"] == "0.1"


def test_its_kernel_is_compiled_by_its_own_compiler_and_kept_in_the_depot(
    tmp_path: Path, tree: SourceTree, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    monkeypatch.setenv("FAKE_JOURNAL", str(journal))
    provided = TOY.provide(recipe.target.platform, tmp_path, print)
    planned = family_of("toy").actions(recipe, tree.identified, KIT)
    depot = Depot(tmp_path / "depot")
    places = PlaceNames((("toy", tree.root), *provided.items()))
    for compiled in ({"toy_kernel"}, set()):
        with depot.workspace() as work:
            (work / "made").mkdir()
            limits = Limits(jobs=1, memory=10**9)
            executor = LocalExecutor(places, {}, dict(os.environ), limits, work)
            history = History(tmp_path / "estimates.json")
            engine = Engine(depot, recipe, executor, {}, history, Silent(), work / "made")
            outcome = engine.run(planned)
        assert outcome.compiled == compiled
    assert journal.read_text().splitlines() == ["start kernel", "end kernel"]
    assert outcome.actions["toy_kernel"].object.size > 0


def test_it_is_in_the_plan_and_in_the_generated_header(tree: SourceTree, recipe: Recipe) -> None:
    plan = BuildPlan(recipe, {"toy": tree}, None, {}, KIT, {}, {})  # type: ignore[arg-type]  (no compiler is called)
    actions = {action.name: action for action in plan.actions()}
    assert actions["toy_kernel"].unit == UNIT
    lines = TOY.config_lines(recipe.selection, recipe.target.sass, tree.identified)
    text = config_header(recipe, lines)
    assert "#define FA_CONFIG_FAMILIES(X) X(toy) X(fa2)" in text
    assert "#define TOY_CONFIG_UNITS 1" in text


def test_its_costs_are_its_own(recipe: Recipe, tree: SourceTree) -> None:
    (action,) = TOY.actions(recipe, tree.identified, KIT)
    assert prior(action, recipe) == costs([UNIT])[0] == TOY.estimate(UNIT, frozenset(), 1, "shared")


def test_a_library_with_it_says_so_in_its_manifest_and_in_the_name_of_its_wheel(
    tmp_path: Path, tree: SourceTree, recipe: Recipe
) -> None:
    depot = Depot(tmp_path / "depot")
    made = store_library(depot, tmp_path / "files", upstreams=recipe.upstreams, selection=recipe.selection)
    manifest = Manifest.from_json(json.loads(json.dumps(made.to_json())))
    assert manifest.selection.families == ("fa2", "toy")
    assert manifest.upstreams["toy"] == tree.id
    assert ".toy." in wheel_version(manifest)
