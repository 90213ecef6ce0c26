"""What zig's clang makes with a precompiled header and without, and that a library launches the same on every target."""

import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.build.schedule import History
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.host.probe import this_platform
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action
from flashdepot.toolchain.targets import CUDA_OUTPUTS, TARGETS, precompiled, target_of
from flashdepot.toolchain.zig import Zig, compiling_version, zig_folder
from support.launch_records import record_launches
from support.recipes import TOOLS, make_recipe

COMMON = """\
#pragma once
#if __has_include("perhaps.h")
#endif
template <typename T> struct Sum { T value; T operator()(T more) { static T all; return all += value * more; } };
"""
KERNEL = r"^(?:__global__ void \w+|DEFINE_FLASH_\w+_KERNEL)\([^{]*\{\n(.*?)^\}"
SOURCE = """\
#include "common.h"
int COUNTER;
extern "C" long UNIT(long more) { return Sum<long>{COUNTER}(more); }
"""


@pytest.mark.usefixtures("quick_library")  # which has zig fetched
def test_clang_makes_the_same_bytes_with_it_from_the_same_files(tmp_path, real_depot) -> None:
    version = compiling_version()
    zig = Zig(zig_folder(this_platform(), real_depot / "toolchains", version), version)
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "common.h").write_text(COMMON)
    (folder / "perhaps.h").touch()
    (folder / "code.fatbin").write_bytes(b"code")
    for name in "abcd":
        (folder / f"{name}.cu").write_text(SOURCE.replace("COUNTER", f"counter_{name}").replace("UNIT", name))
    row = target_of(this_platform())
    front = ("{zig_program}", "clang", "-cc1", "-triple", row.clang, "-emit-obj", "-O2", "-std=c++17")
    cuda = (
        "-aux-triple",
        "nvptx64-nvidia-cuda",
        "-fcuda-include-gpubinary",
        "{src}/code.fatbin",
        "-target-sdk-version=12.3",
    )
    words = (*front, *cuda, "-include", "common.h")
    plain = [Action(name, "src", f"{name}.cu", words, TOOLS, outputs=CUDA_OUTPUTS) for name in "abcd"]

    def build(actions: list[Action], depot: str) -> BuildOutcome:
        place, history = Depot(tmp_path / depot), History(tmp_path / "estimates.json")
        with place.workspace() as work:
            programs = {"zig_program": str(zig.program)}
            executor = LocalExecutor(PlaceNames((("src", folder),)), programs, dict(os.environ), Limits(jobs=1), work)
            outcome = Engine(place, make_recipe(), executor, {}, history, BuildProgress(), work).run(actions)
            made = [path for path in work.glob("header-*/header.pch") if path.stat().st_size]
        assert len(made) == (actions is not plain)
        assert not list(tmp_path.rglob("*.pch")), "none is left behind"
        return outcome

    without = build(plain, "without").actions
    begun = build([replace(action, header=precompiled(words)) for action in plain], "with").actions
    assert "{src}/perhaps.h" in without["a"].inputs, "asked for, and so an input"
    assert {n: (r.action_key, r.object) for n, r in begun.items()} == {
        n: (r.action_key, r.object) for n, r in without.items()
    }


def test_upstreams_kernels_call_nothing_on_the_host_that_has_a_body(upstream_tree) -> None:
    called: set[str] = set()
    for path in (upstream_tree / "csrc/flash_attn/src").glob("flash_*_launch_template.h"):
        for body in re.findall(KERNEL, path.read_text(), re.MULTILINE | re.DOTALL):
            if "ARCH_SUPPORTS_FLASH" not in body:
                called.update(re.findall(r"FLASH_NAMESPACE::(\w+)<", body))
    declared = "".join(path.read_text() for path in (NATIVE / "host/fa2").glob("*.h"))
    assert called == set(re.findall(r"^void (\w+)\(", declared, re.MULTILINE))


LIBRARIES = os.environ.get("FLASHDEPOT_TEST_LAUNCHES")
"""A folder with libraries as `flashdepot get --target T --out` writes them, each by the name of its target."""


@pytest.mark.skipif(LIBRARIES is None, reason="compares libraries: FLASHDEPOT_TEST_LAUNCHES names their folder")
def test_three_thousand_random_calls_launch_the_same_on_every_target(real_depot, tmp_path) -> None:
    version = compiling_version()
    zig = Zig(zig_folder(this_platform(), real_depot / "toolchains", version), version)
    made = {}
    for name in map(str, TARGETS):
        library = Path(str(LIBRARIES), name)
        if library.is_dir():
            made[name] = record_launches(name, library, tmp_path / name, 3000, zig=zig, prefix=tmp_path / "wine")
    ran = [launches for launches in made.values() if launches is not None]
    assert len(ran) > 1, f"nothing to compare: {', '.join(made)}"
    first, *others = ran
    assert first.ran > 0
    for other in others:
        assert other.answers == first.answers
        assert other.orders == first.orders
