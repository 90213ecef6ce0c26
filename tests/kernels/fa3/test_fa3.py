"""Which units of FlashAttention-3 there are, how each is compiled, and what a source tree must hold."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot import kernels
from flashdepot.errors import MissingToolError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels import family_of, parse_families
from flashdepot.kernels.fa2 import make_unit, parse_unit
from flashdepot.kernels.fa3 import (
    CUTLASS_INCLUDE,
    SOURCE_DIR,
    UNITS_DIR,
    Fa3,
    Fa3Layout,
    actions,
    published,
    row,
    units,
)
from flashdepot.kernels.fa4.sources import Fa4Layout
from flashdepot.model.selection import Dtype, Feature, Pass, Selection
from flashdepot.model.target import Architecture
from support.recipes import COMPILERS, make_recipe
from support.tools import write_files

HOPPER = Architecture(9, 0)


def test_the_units_are_fp8_and_absorbed_latent_attention_each_in_four_kinds() -> None:
    assert len(units()) == 16
    assert {(u.dtype, u.head_dim) for u in units()} == {
        (Dtype.E4M3, 64), (Dtype.E4M3, 128), (Dtype.E4M3, 256), (Dtype.BF16, 64),
    }  # fmt: skip
    assert sum(u.pass_ is Pass.SPLITKV for u in units()) == 8
    names = {u.name: row(u) for u in units()}
    assert names["flash_fwd_hdim64_512_bf16_paged_split_sm90"] == "X(bf16, 64, 512, true, true)"
    assert names["flash_fwd_hdim256_e4m3_sm90"] == "X(e4m3, 256, 256, false, false)"


def test_it_is_built_only_where_it_is_named() -> None:
    assert parse_families("all") == {"fa2", "fa4"}
    assert parse_families("all,fa3") == {"fa2", "fa3", "fa4"}
    assert "fa3" not in {family.name for family in kernels.tested_families([HOPPER])}
    assert "9.0 only" in family_of("fa3").lacks(Architecture(8, 0))


def test_the_c_layer_knows_the_units_and_whether_parts_are_combined() -> None:
    source = published()["0.0.34"].identified
    plain = frozenset(u for u in units() if u.dtype is Dtype.E4M3 and u.pass_ is Pass.FWD)
    lines = list(actions.config_lines(Selection(plain, frozenset({Feature.LOCAL})), (), source))
    assert "#define FA3_CONFIG_HAS_COMBINE 0" in lines
    assert "#define FA3_CONFIG_HAS_LOCAL 1" in lines
    assert lines[-1].count("X(e4m3") == 6
    assert "#define FA3_CONFIG_HAS_COMBINE 1" in list(actions.config_lines(Selection(units(), frozenset()), (), source))


def test_each_unit_is_compiled_for_hopper_with_what_it_calls_before_and_after() -> None:
    source, wanted = published()["0.0.34"].identified, Selection(units(), frozenset())
    flags = {"fa3": actions.flags(COMPILERS, (Architecture(8, 0),), compress="size")}
    recipe = make_recipe("80,90", selection=wanted, upstreams={"fa3": source.id}, flags=flags)
    made = [*actions.actions(recipe, source, COMPILERS)]
    files = {action.source.rpartition("/")[2].removesuffix(".cu") for action in made}
    assert files == {*(unit.name for unit in units()), "flash_prepare_scheduler", "flash_fwd_combine"}
    assert {action.unit.name for action in made if action.unit} == {unit.name for unit in units()}
    device = next(action for action in made if "-fatbin" in action.arguments)
    assert [word for word in device.arguments if "sm_" in word] == ["arch=compute_90a,code=sm_90a"]
    plain = replace(recipe, selection=Selection(frozenset(u for u in units() if u.pass_ is Pass.FWD), frozenset()))
    assert not [a for a in actions.actions(plain, source, COMPILERS) if "flash_fwd_combine" in a.source]


@pytest.mark.parametrize("layout", [Fa3Layout, Fa4Layout])
def test_the_version_of_a_tree_is_that_of_its_sdist(layout, tmp_path) -> None:
    files = tree(tmp_path, "PKG-INFO", f"{SOURCE_DIR}/a.h", f"{SOURCE_DIR}/a.md", "module.py")
    assert layout().version(files) == "unknown"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.2.3\n")
    assert layout().version(files) == "1.2.3"
    expected = [f"{SOURCE_DIR}/a.h", CUTLASS_INCLUDE] if layout is Fa3Layout else ["module.py"]
    assert [*layout().sources(files)] == expected


def tree(folder: Path, *names: str) -> PlainFiles:
    return PlainFiles(write_files(folder, dict.fromkeys(names, "x")))


def test_a_tree_without_the_kernels_or_without_cutlass_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="not a source tree that holds FlashAttention-3"):
        Fa3Layout().require_complete(tree(tmp_path))
    files = tree(tmp_path, f"{SOURCE_DIR}/flash_fwd_launch_template.h")
    with pytest.raises(MissingToolError, match="lacks CUTLASS"):
        Fa3Layout().require_complete(files)
    files = tree(tmp_path, f"{CUTLASS_INCLUDE}/cute/tensor.hpp", f"{UNITS_DIR}/flash_fwd_hdim64_e4m3_sm90.cu")
    Fa3Layout().require_complete(files)
    assert [unit.name for unit in Fa3Layout().units(files)] == ["flash_fwd_hdim64_e4m3_sm90"]
    with pytest.raises(UsageError, match="no licence text"):
        Fa3().licences(files)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("flash_fwd_hdim64_bf16_sm80", make_unit(Pass.FWD, 64, Dtype.BF16, causal=False)),
        ("flash_fwd_split_hdim256_fp16_causal_sm80", make_unit(Pass.SPLITKV, 256, Dtype.FP16, causal=True)),
        ("flash_bwd_hdim160_bf16_causal_sm80", make_unit(Pass.BWD, 160, Dtype.BF16, causal=True)),
    ],
)
def test_a_unit_is_read_from_upstreams_file_name_and_written_back(name, unit) -> None:
    assert parse_unit(name) == unit
    assert unit.name == name


@pytest.mark.parametrize("name", ["flash_api", "flash_fwd_hdim64_fp8_sm80", "flash_fwd_hdim64_bf16_sm90", "generate"])
def test_other_file_names_are_no_units(name) -> None:
    assert parse_unit(name) is None
