from __future__ import annotations

import pytest
from msgspec.structs import replace

from flashdepot.facts.cuda import driver_floor
from flashdepot.kernels import actions, family_of
from flashdepot.kernels.fa2.actions import feature_macros
from flashdepot.model.selection import ALL_FEATURES, Feature, Selection
from flashdepot.model.target import Architecture, Version, parse_list
from flashdepot.toolchain.nvcc import compresses_newly, compression, gencode, usual_compression
from flashdepot.upstream import Identified
from support.recipes import COMPILERS, make_recipe, make_unit


def test_the_shared_front_end_compiles_once_for_all_architectures() -> None:
    assert gencode(parse_list("80,120"), Architecture(8, 0)) == (
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode",
        "arch=compute_80,code=sm_120",
    )


def test_the_native_front_end_compiles_each_by_itself() -> None:
    assert gencode(parse_list("90"), None) == ("-gencode", "arch=compute_90,code=sm_90")


def test_features_left_out_are_compiled_out_where_the_tree_knows_them() -> None:
    kept = frozenset({Feature.SOFTCAP})
    defines = feature_macros(ALL_FEATURES - {Feature.LOCAL}, kept)
    assert set(defines) == {
        "-DFLASHATTENTION_DISABLE_DROPOUT",
        "-DFLASHATTENTION_DISABLE_ALIBI",
        "-DFLASHATTENTION_DISABLE_UNEVEN_K",
    }


def test_an_nvcc_without_modes_compresses_in_the_way_it_has() -> None:
    assert compression(frozenset({"--compress-mode"}), "size") == ("--compress-mode=size",)
    assert compression(frozenset(), "size") == ("-Xfatbin", "-compress-all")
    assert compression(frozenset(), "none") == ()


@pytest.mark.parametrize(
    ("cuda", "floor"), [("12.4", "525.60.13"), ("12.8", "525.60.13"), ("12.9", "525.60.13"), ("13.0", "580")]
)
@pytest.mark.parametrize("options", [frozenset(), frozenset({"--compress-mode"})])
def test_every_driver_of_the_cuda_major_version_reads_what_is_compressed_by_default(
    cuda: str, floor: str, options: frozenset[str]
) -> None:
    flags = compression(options, usual_compression(Version(cuda)))
    found = driver_floor(Version(cuda).major, "linux", compressed=compresses_newly(flags))
    assert found == Version(floor)


def test_a_mode_that_old_drivers_cannot_read_raises_the_floor_of_cuda_12() -> None:
    flags = compression(frozenset({"--compress-mode"}), "size")
    assert driver_floor(12, "linux", compressed=compresses_newly(flags)) == Version("550.54.14")


def test_kernels_stay_hidden_from_other_libraries() -> None:
    options = frozenset({"--static-global-template-stub", "--device-entity-has-hidden-visibility"})
    kit = replace(COMPILERS, nvcc_options=options)
    flags = family_of("fa2").flags(kit, parse_list("80"), front_end="shared", compress="none")
    assert "--static-global-template-stub=true" in flags
    assert "--device-entity-has-hidden-visibility=true" in flags


def test_the_config_header_says_what_is_in_the_library() -> None:
    units = make_recipe().selection.units
    recipe = make_recipe("80,90", selection=Selection(units, frozenset({Feature.SOFTCAP})))
    source = Identified(recipe.upstream, units | {make_unit(head_dim=32)}, ALL_FEATURES)
    lines = family_of("fa2").config_lines(recipe.selection, recipe.target.sass, source)
    text = actions.config_header(recipe, lines)
    assert '#define FA2_CONFIG_UPSTREAM "2.8.3.post2"' in text
    assert "#define FA_CONFIG_CUDA 13000\n" in text
    assert '#define FA_CONFIG_DRIVER "580"\n' in text
    assert "#define FA2_CONFIG_DQ_INDEX_BITS 64\n" in text
    assert "#define FA2_CONFIG_SASS 80, 90\n" in text
    assert "#define FA2_CONFIG_HEAD_DIMS 32, 64\n" in text
    assert "#define FA2_CONFIG_HAS_SOFTCAP 1\n" in text
    assert "#define FA2_CONFIG_HAS_LOCAL 0\n" in text
    assert "X(bf16, 64, false) \\\n    X(bf16, 64, true)\n" in text
    assert "#define FA2_CONFIG_BWD_UNITS(X)\n" in text
