"""A family joins by its folder and its entry in ``FAMILIES``; nothing else knows of it."""

import ctypes
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot import kernels
from flashdepot.build.engine import Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.library import BuildPlan
from flashdepot.build.local import LocalExecutor
from flashdepot.build.schedule import prior
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.kernels import family_of
from flashdepot.kernels.actions import config_header
from flashdepot.model.host import Gpu
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Recipe, UpstreamId
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import Selection
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve import library
from flashdepot.resolve.own_wheel_name import wheel_version
from flashdepot.resolve.project import library_request
from flashdepot.upstream import Identified, SourceTree
from kernels.toy.family import C_LAYER, KERNEL, UNIT, Toy
from support import stub_library
from support.depots import store_library
from support.fa_abi import ChoiceAnswer, Info, Status, forward_args
from support.recipes import COMPILERS, make_recipe
from support.toolkits import make_host

TOY = Toy()
ENTRIES = (*kernels.FAMILIES, TOY)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FAMILIES", ENTRIES)


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    folder = tmp_path / "toy-source"
    folder.mkdir()
    (folder / "kernel.cpp").write_text(KERNEL)
    return TOY.sources.obtain(str(folder), tmp_path / "cache")


@pytest.fixture
def recipe(tree: SourceTree) -> Recipe:
    plain = make_recipe()
    selection = Selection(plain.selection.units | {UNIT}, plain.selection.features)
    flags = TOY.flags(COMPILERS, plain.target.sass, compress="size")
    upstreams = {**plain.upstreams, "toy": tree.id}
    return replace(plain, upstreams=upstreams, selection=selection, flags={**plain.flags, "toy": flags})


def test_a_request_that_names_it_asks_for_its_kernels_and_its_source(tmp_path) -> None:
    host = replace(make_host(), gpus=(Gpu("NVIDIA H100", Architecture(9, 0), 80 * 10**9),), driver=Version("580"))
    depot = Depot(tmp_path / "depot")
    assert UNIT not in library.resolve_library(LibraryRequest(), host, depot).request.selection.units
    need = library.resolve_library(library_request(families="all"), host, depot)
    assert UNIT in need.request.selection.units
    assert need.request.upstreams["toy"] == UpstreamId("0.1", "a" * 64)
    assert need.sources["toy"] == "0.1"


@pytest.fixture
def kernel(tmp_path: Path, tree: SourceTree, recipe: Recipe) -> Path:
    """The object of its kernel in a depot, compiled by the family's action the first time, and found the second."""
    provided = TOY.provide(recipe.target.platform, tmp_path, print)
    planned = family_of("toy").compiler.actions(recipe, tree, COMPILERS)
    depot = Depot(tmp_path / "depot")
    places = PlaceNames((("toy", tree.root), *provided.items()))
    for compiled in ({"toy_kernel"}, set()):
        with depot.workspace() as work:
            limits = Limits(jobs=1, memory=10**9)
            executor = LocalExecutor(places, {}, dict(os.environ), limits, work)
            outcome = Engine(depot, recipe, executor, {}, BuildProgress(), work).run(planned)
        assert outcome.compiled == compiled
    blob = depot.blobs.find(outcome.actions["toy_kernel"].object.digest)
    assert blob is not None
    return Path(shutil.copy(blob, tmp_path / "toy_kernel.o"))


def header(recipe: Recipe, tree: SourceTree) -> str:
    """What a build with both families generates for the C layer."""
    fa2 = Identified(recipe.upstreams["fa2"], recipe.selection.units, recipe.selection.features)
    lines = [
        line
        for family, source in (("fa2", fa2), ("toy", tree))
        for line in family_of(family).compiler.config_lines(recipe.selection, recipe.target.sass, source)
    ]
    return config_header(recipe, lines)


@dataclass(frozen=True)
class ToyLibrary(stub_library.Selection):
    """A library whose header is the generated one."""

    text: str = ""

    def header(self) -> str:
        return self.text


def test_it_is_linked_into_a_library_that_gives_it_the_calls_that_it_serves(
    tmp_path, tree, recipe, kernel, upstream_tree, cuda_include
) -> None:
    wanted = ToyLibrary(text=header(recipe, tree), parts=(C_LAYER, kernel))
    stub = stub_library.build(wanted, tmp_path, upstream_tree, cuda_include)
    stub.reset()
    info = Info(size=ctypes.sizeof(Info))
    assert stub.c.fa_build_info(info) == Status.OK
    held = [(family.name, family.upstream) for family in info.families[: info.families_count]]
    assert held == [(b"toy", b"0.1"), (b"fa2", b"2.8.3.post2")]
    for fields, kind in (({"dtype": 1, "head_dim": 32}, "fill"), ({}, "fwd"), ({"dtype": 1, "family": 1}, "")):
        args = forward_args(**fields)
        answer = stub.fwd(args)
        launches = stub.launches()
        assert [launch["kind"] for launch in launches] == ([kind] if kind else []), answer.text
        assert answer.status is (Status.OK if kind else Status.UNSUPPORTED)
    assert answer.text == "head_dim is 64, and its one kernel is fp16 32"
    choice = ChoiceAnswer(size=ctypes.sizeof(ChoiceAnswer))
    assert stub.c.fa_supports(0, forward_args(dtype=1, head_dim=32), choice) == Status.OK
    assert choice.name == b"toy"


def test_it_is_in_the_plan_and_in_the_generated_header(tree, recipe) -> None:
    plan = BuildPlan(recipe, {"toy": tree}, None, {}, COMPILERS, {}, {})  # type: ignore[arg-type]  (no compiler is called)
    actions = {action.name: action for action in plan.actions()}
    assert actions["toy_kernel"].unit == UNIT
    text = header(recipe, tree)
    assert "#define FA_CONFIG_FAMILIES(X) X(toy) X(fa2)" in text
    assert "#define TOY_CONFIG_UNITS 1" in text


def test_its_costs_are_its_own(recipe, tree) -> None:
    (action,) = TOY.actions(recipe, tree, COMPILERS)
    assert prior(action, recipe) == TOY.estimate(UNIT, frozenset(), 1)


def test_a_library_with_it_says_so_in_its_manifest_and_in_the_name_of_its_wheel(tmp_path, tree, recipe) -> None:
    depot = Depot(tmp_path / "depot")
    made = store_library(depot, tmp_path / "files", upstreams=recipe.upstreams, selection=recipe.selection)
    manifest = Manifest.from_json(json.loads(json.dumps(made.to_json())))
    assert manifest.selection.families == ("fa2", "toy")
    assert manifest.upstreams["toy"] == tree.id
    assert ".toy." in wheel_version(manifest)
