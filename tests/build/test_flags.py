"""Flags of compilers, what a compiler's failure is taken for, and objects that are not linked."""

import os
import shutil
from collections import namedtuple
from typing import Any

import pytest
from msgspec.structs import replace

from flashdepot.binary.elf import undefined_symbols
from flashdepot.build.engine import compile_error
from flashdepot.errors import CompileError, FlashdepotError, MissingToolError
from flashdepot.facts.gpus import driver_floor
from flashdepot.kernels import actions, family_of
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.kernels.fa2.actions import feature_macros
from flashdepot.model.selection import ALL_FEATURES, Feature, Selection
from flashdepot.model.target import Architecture, Version
from flashdepot.process.run import killed_for_memory
from flashdepot.toolchain.linked import link
from flashdepot.toolchain.nvcc import compresses_newly, compression, gencode, usual_compression
from flashdepot.toolchain.targets import TARGETS
from flashdepot.upstream import Identified
from support.programs import compile_c
from support.recipes import COMPILERS, architectures, fa2_actions, make_recipe, make_unit


def test_code_is_generated_once_for_all_architectures() -> None:
    assert gencode(architectures("80,120"), Architecture(8, 0)) == (
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode",
        "arch=compute_80,code=sm_120",
    )


def test_a_family_for_one_gpu_is_compiled_for_it() -> None:
    assert gencode(architectures("90"), None) == ("-gencode", "arch=compute_90,code=sm_90")


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
def test_every_driver_of_the_cuda_major_version_reads_what_is_compressed_by_default(cuda, floor, options) -> None:
    flags = compression(options, usual_compression(Version(cuda)))
    found = driver_floor(Version(cuda).major, "linux", compressed=compresses_newly(flags))
    assert found == Version(floor)


def test_a_mode_that_old_drivers_cannot_read_raises_the_floor_of_cuda_12() -> None:
    flags = compression(frozenset({"--compress-mode"}), "size")
    assert driver_floor(12, "linux", compressed=compresses_newly(flags)) == Version("550.54.14")


def test_kernels_stay_hidden_from_other_libraries() -> None:
    options = frozenset({"--static-global-template-stub", "--device-entity-has-hidden-visibility"})
    compilers = replace(COMPILERS, nvcc_options=options)
    flags = family_of("fa2").compiler.flags(compilers, architectures("80"), compress="none")
    assert "--static-global-template-stub=true" in flags
    assert "--device-entity-has-hidden-visibility=true" in flags


@pytest.mark.parametrize("option", ["--objdir-as-tempdir", "--frandom-seed"])
def test_an_nvcc_is_asked_for_the_same_bytes_each_time_by_the_options_that_it_has(option) -> None:
    for options, expected in ((frozenset({option}), True), (frozenset(), False)):
        kernel, *_ = fa2_actions(make_recipe(), replace(COMPILERS, nvcc_options=options))
        assert (option in {word.partition("=")[0] for word in kernel.arguments}) == expected


def test_the_config_header_says_what_is_in_the_library() -> None:
    units = make_recipe().selection.units
    recipe = make_recipe("80,90", selection=Selection(units, frozenset({Feature.SOFTCAP})))
    source = Identified(recipe.upstream, units | {make_unit(head_dim=32)}, ALL_FEATURES)
    lines = family_of("fa2").compiler.config_lines(recipe.selection, recipe.target.sass, source)
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


@pytest.mark.parametrize(
    ("status", "log"),
    [
        *([] if os.name == "nt" else [(-9, ""), (137, "")]),
        (9, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
        (1, "g++: fatal error: Killed signal terminated program cc1plus"),
        (1, "Catastrophic error: out of memory"),
        (2, "layout_composed.hpp(478): catastrophic error : out of memory"),  # as on Windows
        (2, "cc1plus: out of memory allocating 65536 bytes"),
        (1, "terminate called after throwing an instance of 'std::bad_alloc'"),
    ],
)
def test_a_compiler_that_ran_out_of_memory_is_recognized(status, log) -> None:
    assert killed_for_memory(status, log)


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (1, "x.cu(3): error: identifier is undefined"),
        (11, "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)"),
        (4, ""),
    ],
)
def test_other_failures_are_not_blamed_on_memory(status, log) -> None:
    assert not killed_for_memory(status, log)


def test_the_first_error_is_reported_and_not_what_follows_from_it(tmp_path) -> None:
    log = "a.h(9): warning #177-D: unused\na.cu(3): error: no such thing\n1 error detected\nmake: stopped\n"
    error = compile_error("unit", 2, log, tmp_path / "unit.log")
    assert isinstance(error, CompileError)
    assert error.message.endswith("a.cu(3): error: no such thing")
    assert str(tmp_path / "unit.log") in error.hint


@pytest.mark.parametrize("log", ["", "ptxas fatal : Could not write: No space left on device"])
def test_a_full_disk_is_named_even_when_the_message_was_lost_with_it(tmp_path, monkeypatch, log) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(70 * 10**6, 35 * 10**6, 35 * 10**6))
    error = compile_error("unit", 4, log, tmp_path / "unit.log")
    assert isinstance(error, MissingToolError)
    assert "35 MB are free" in error.message
    assert "--depot DIR" in error.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "name"),
    [("exit(1)", "exit"), ("abort()", "abort"), ("_exit(2)", "_exit"), ("assert(count)", "__assert_fail")],
)
def test_an_object_that_may_end_the_program_is_not_linked(tmp_path, statement, name) -> None:
    source = tmp_path / "unit.c"
    source.write_text(
        "#include <assert.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        f"void fa_fwd(int count) {{ if (count > 3) {{ {statement}; }} }}\n"
    )
    compiled = compile_c(source, tmp_path / "unit.o", "-c", "-fPIC")
    assert name in undefined_symbols(compiled)
    zig: Any = None
    with pytest.raises(FlashdepotError, match=rf"unit\.o calls {name}, which ends the program"):
        link(TARGETS[0], zig, [compiled], NATIVE, tmp_path)
