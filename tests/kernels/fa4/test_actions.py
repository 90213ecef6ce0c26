import ast
import json
import os
import shutil

import pytest

from flashdepot.build.engine import Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.kernels.fa4 import Fa4, actions
from flashdepot.kernels.fa4.actions import WORKER
from flashdepot.kernels.fa4.sources import published
from flashdepot.kernels.fa4.units import unit_of, units
from flashdepot.kernels.fa4.variants import Variant
from flashdepot.model.codec import read
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Feature, Pass, Selection, Unit, select
from flashdepot.model.target import Platform, Target, Version
from support.recipes import architectures, make_recipe

SOURCE = published()["4.0.0b36"].identified
BACKWARD = unit_of(Variant("bwd", 128, "bf16", "packed", "full", several_heads=True))


def recipe_of(*chosen: Unit, platform: str = "linux-x86_64", sass: str = "80,90") -> Recipe:
    target = Target(Platform.parse(platform), 13, architectures(sass), Version("580"))
    return make_recipe(
        selection=Selection(frozenset(chosen), ALL_FEATURES), target=target, flags={"fa4": actions.flags()}
    )


@pytest.mark.parametrize("changed", ["worker/sm90.py", "variants.py"])
def test_a_change_of_how_kernels_are_made_is_another_recipe(changed, tmp_path, monkeypatch) -> None:
    copy = tmp_path / "fa4"
    shutil.copytree(WORKER.parent, copy)
    monkeypatch.setattr(actions, "WORKER", copy / "worker")
    before = recipe_of(BACKWARD).key
    (copy / changed).write_text((copy / changed).read_text() + "  # a comment\n")
    assert recipe_of(BACKWARD).key == before
    (copy / changed).write_text("changed = True\n")
    assert recipe_of(BACKWARD).key != before


def test_a_profile_without_a_feature_leaves_its_kernels_out() -> None:
    quick = select(PROFILES["quick"], units()).units
    assert {u.pass_ for u in quick} == {Pass.FWD}
    assert not any(u.features for u in quick)
    windows = {u for u in select(PROFILES["full"], units()).units if Feature.LOCAL in u.features}
    assert windows
    assert all("_local" in u.name for u in windows)
    assert select(PROFILES["full"], units()).units == units()


def test_a_unit_is_read_from_json_as_it_was_written() -> None:
    for unit in units():
        assert read(json.loads(json.dumps(unit.to_json())), Unit) == unit


def test_a_backward_unit_brings_the_kernels_that_prepare_and_finish_for_it() -> None:
    made = {a.name: a for a in actions.actions(recipe_of(BACKWARD))}
    assert set(made) == {
        "fa4_sm90a_bwd_d128_bf16_packed_full_gqa",
        "fa4_sm90a_pre_d128_bf16_packed_m64",
        "fa4_sm90a_dq_d128_bf16_packed_m64",
        "fa4_sm90a_dkv_d128_bf16_packed",
        "fa4_sm90a_whole_d128_bf16_packed_full_n64",
        "fa4_sm90a_whole_d128_bf16_packed_full_n128",
    }
    assert [a.unit for a in made.values() if a.unit] == [BACKWARD]


def test_nothing_is_compiled_for_an_architecture_that_has_no_kernels() -> None:
    assert not list(actions.actions(recipe_of(BACKWARD, sass="80,89")))


def test_consumer_blackwell_has_forward_kernels() -> None:
    recipe = recipe_of(*units(), sass="90,120")
    made = {a.name: a for a in actions.actions(recipe) if a.name.startswith("fa4_sm120f_")}
    assert set(made) == {
        f"fa4_sm120f_fwd_d{dim}_{dtype}_{layout}_{mask}{softcap}"
        for dim in (64, 96, 128)
        for dtype in ("bf16", "fp16")
        for layout in ("dense", "packed", "used")
        for mask in ("full", "causal", "local")
        for softcap in ("", "_softcap")
    }
    action = made["fa4_sm120f_fwd_d96_fp16_dense_causal"]
    job = json.loads(action.arguments[-1])
    assert (job["arch"], job["tile_m"], job["tile_n"]) == ("sm_120f", 128, 64)
    lines = "\n".join(actions.config_lines(recipe.selection, recipe.target.sass, SOURCE))
    assert "#define FA4_CONFIG_SASS 90, 120\n" in lines
    assert "X(120, f, fwd, fp16, 96, 96, dense, causal, 0, 0, 0, 0, 0, 0, 128, 64, fwd_d96_fp16_dense_causal)" in lines


def test_datacenter_blackwell_has_a_backward_pass_that_is_prepared_for_by_its_own_tiles() -> None:
    variant = Variant("bwd", 96, "fp16", "packed", "local", several_heads=True)
    chosen = [unit_of(variant), unit_of(variant, "100f"), unit_of(variant, "110f")]
    made = {a.name: a for a in actions.actions(recipe_of(*chosen, sass="90,100,103"))}
    of_both = ("bwd_d96_fp16_packed_local_gqa", "dkv_d96_fp16_packed")
    assert set(made) == {
        *(f"fa4_sm{arch}_{name}" for arch in ("90a", "100f") for name in of_both),
        *(f"fa4_sm90a_{kernel}_d96_fp16_packed_m64" for kernel in ("pre", "dq")),
        *(f"fa4_sm100f_{kernel}_d96_fp16_packed_m128" for kernel in ("pre", "dq")),
    }
    assert {a.unit for a in made.values() if a.unit} == set(chosen[:2])
    job = json.loads(made["fa4_sm100f_bwd_d96_fp16_packed_local_gqa"].arguments[-1])
    assert (job["arch"], job["tile_m"], job["tile_n"]) == ("sm_100f", 128, 128)


@pytest.mark.parametrize("arch", ["90", "100", "110", "120"])
def test_the_worker_has_a_function_for_every_job(arch) -> None:
    jobs = [json.loads(a.arguments[-1]) for a in actions.actions(recipe_of(*units(), sass=arch))]
    module = {_assigned("compile_one", "_MODULES")[job["arch"]] for job in jobs}
    assert len(module) == 1
    assert {job["kernel"] for job in jobs} == set(_assigned(module.pop(), "KERNELS"))


def _assigned(module: str, name: str) -> dict[str, str]:
    """A table of names that a module of the worker's has, as source: CuTe is not there to import it."""
    body = ast.parse((WORKER / f"{module}.py").read_text()).body
    table = next(n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name)
    assert isinstance(table, ast.Dict)
    return {
        ast.literal_eval(key): ast.unparse(value).strip("'")
        for key, value in zip(table.keys, table.values, strict=True)
        if key
    }


def test_a_unit_costs_what_one_architecture_does_whatever_else_is_compiled() -> None:
    family, other = Fa4(), unit_of(Variant("bwd", 128, "bf16", "packed", "full", several_heads=True), "100f")
    one, four = (family.estimate(BACKWARD, ALL_FEATURES, n).seconds for n in (1, 4))
    assert one == four < family.estimate(other, ALL_FEATURES, 1).seconds


def test_every_unit_has_an_architecture_that_runs_it_and_no_two_have_one_name() -> None:
    family = Fa4()
    gpus = architectures("90,100,110,120")
    assert [sum(family.runs(unit, gpu) for gpu in gpus) for unit in units()] == [1] * len({u.name for u in units()})
    for newer, older in (("103", "100"), ("121", "120")):
        (new,), (old,) = architectures(newer), architectures(older)
        assert all(family.runs(unit, new) == family.runs(unit, old) for unit in units())


def test_the_host_that_launches_a_kernel_is_in_its_key_and_the_place_of_tools_is_not() -> None:
    (here, *_), (there, *_) = (
        actions.actions(recipe_of(BACKWARD, platform=p)) for p in ("linux-x86_64", "linux-aarch64")
    )
    assert here.name == there.name
    assert here.intent_key({}) != there.intent_key({})
    command = here.command(
        {"python": "/p", "cute_dsl": "/c", "fa4_worker": "/w", "fa4": "/u", "work": "/t", "output": "o", "depfile": "d"}
    )
    assert command[0] == "/p"
    assert command[-2:] == ["o", "d"]
    assert json.loads(command[-3])["triple"] == "x86_64-unknown-linux-gnu"


def test_the_table_of_the_c_layer_has_a_row_for_each_object() -> None:
    recipe = recipe_of(BACKWARD, unit_of(Variant("fwd", 64, "fp16", "paged", "local", softcap=True)))
    lines = list(actions.config_lines(recipe.selection, recipe.target.sass, SOURCE))
    table = next(line for line in lines if line.startswith("#define FA4_CONFIG_UNITS(X)"))
    rows = [row.strip() for row in table.split("\\\n")[1:]]
    assert {f"fa4_sm90a_{row.rstrip(')').rsplit(' ', 1)[1]}" for row in rows} == {
        a.name for a in actions.actions(recipe)
    }
    assert (
        "X(90, a, fwd, fp16, 64, 64, paged, local, 1, 0, 0, 0, 0, 0, 192, 128, fwd_d64_fp16_paged_local_softcap)"
        in rows
    )


@pytest.mark.network
@pytest.mark.skipif(
    "FLASHDEPOT_TEST_CUTE_DSL" not in os.environ,
    reason="fetches 125 MB of CuTe DSL and compiles with it: set FLASHDEPOT_TEST_CUTE_DSL=1",
)
def test_a_kernel_is_compiled_once_and_then_comes_from_the_depot(real_depot, tmp_path) -> None:
    family, platform = Fa4(), Platform("linux", os.uname().machine)
    provided = family.provide(platform, real_depot / "toolchains", lambda _: None)
    tree = family.sources.obtain("4.0.0b36", real_depot / "upstreams")
    recipe = recipe_of(unit_of(Variant("bwd", 64, "bf16", "dense", "full")), platform=str(platform))
    wanted = [a for a in actions.actions(recipe) if "_dq_" in a.name]
    depot = Depot(tmp_path / "depot")

    def run() -> frozenset[str]:
        places = PlaceNames((("fa4", tree.root), *provided.items()))
        with depot.workspace() as work:
            executor = LocalExecutor(places, {}, dict(os.environ), Limits(1), work)
            outcome = Engine(depot, recipe, executor, {}, BuildProgress(), work).run(wanted)
        (record,) = outcome.actions.values()
        assert record.peak_rss > 100 << 20
        assert any(name.startswith("{fa4}/flash_bwd_postprocess") for name in record.inputs)
        assert any(name.startswith("{fa4_worker}/sm90") for name in record.inputs)
        return outcome.compiled

    assert run() == {"fa4_sm90a_dq_d64_bf16_dense_m128"}
    assert run() == frozenset()
