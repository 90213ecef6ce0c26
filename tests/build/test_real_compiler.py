"""The whole way with a real nvcc, on a source tree whose kernels are small.

FLASHDEPOT_TEST_COMPILER=1 runs those that compile it again and again too: seven minutes on two cores.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flashdepot
from flashdepot.binary.elf import read_shared_library
from flashdepot.depot import Depot
from flashdepot.files.disk import sha256_file
from flashdepot.host.probe import this_platform
from flashdepot.model.manifest import Manifest
from flashdepot.toolchain import wheels
from flashdepot.toolchain.nvcc import inspect, known, nvcc_flags
from support.depots import COMPILED, COMPILERS, copy_depot, flip_bit, truncate
from support.tools import assert_ends, run_program
from support.upstreams import make_toy_upstream

pytestmark = pytest.mark.nvcc
slow = pytest.mark.skipif(
    os.environ.get("FLASHDEPOT_TEST_COMPILER") != "1", reason="compiles for minutes: set FLASHDEPOT_TEST_COMPILER=1"
)

WANTED = ("--profile", "full", "--passes", "fwd", "--head-dims", "32", "--arch", "80,90")


class SourceProject:
    """A toy tree, and a depot with some folders of the depot that has the quick library."""

    def __init__(self, folder: Path, upstream: Path, real_depot: Path, held: tuple[str, ...]) -> None:
        folder.mkdir(exist_ok=True)
        self.tree = make_toy_upstream(folder / "tree", upstream)
        self.source = self.tree / "csrc/flash_attn/src"
        self.depot = copy_depot(real_depot, folder / "depot", held)

    def build(self, *arguments: str, command: str = "build") -> Any:
        base = [sys.executable, "-m", "flashdepot", command, "--upstream", str(self.tree), *WANTED, *arguments]
        return json.loads(run_program([*base, "--depot", str(self.depot), "--json"]))

    def manifest(self, document: Any) -> Manifest:
        return Manifest.from_json(json.loads(Path(document["manifest"]).read_text()))


@pytest.fixture
def project(tmp_path: Path, upstream_tree: Path, real_depot: Path, quick_library: Path) -> SourceProject:
    return SourceProject(tmp_path / "shop", upstream_tree, real_depot, COMPILED)


def test_where_nvcc_does_not_run_it_is_known_as_it_answers(real_depot, quick_library) -> None:
    assert quick_library.is_dir()
    root = wheels.pinned_toolkit(this_platform()).provide(real_depot / "toolchains", lambda _: None)
    asked, listed = inspect(root), known(root, wheels.provided_version())
    assert (listed.version, listed.codes) == (asked.version, asked.codes)
    assert listed.options <= asked.options
    flags = {"virtual": None, "compress": "size"}
    assert nvcc_flags((), **flags, options=listed.options) == nvcc_flags((), **flags, options=asked.options)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@slow
def test_a_change_recompiles_just_the_units_that_read_it(project) -> None:
    first = project.build()
    assert first["units"] == {"total": 2, "compiled": 2, "reused": 0}
    os.utime(project.source / "toy_fwd.h")
    assert project.build()["status"] == "hit", "a touched file is the same file"
    edit(project.source / "toy_bwd.h", "#pragma once", "#pragma once\n// no selected unit reads this")
    unread = project.build()
    assert (unread["status"], unread["units"]["compiled"]) == ("built", 0)
    edit(project.source / "toy_fwd.h", "return 1;", "return 2;")  # inside #ifndef __CUDA_ARCH__
    assert project.build()["units"]["compiled"] == 2
    edit(project.source / "flash_fwd_hdim32_bf16_sm80.cu", "namespace FLASH", "// a comment\nnamespace FLASH")
    assert project.build()["units"]["compiled"] == 1


@slow
def test_keys_and_bytes_are_the_same_in_another_folder_and_depot_and_with_more_cores(
    tmp_path, upstream_tree, real_depot, quick_library
) -> None:
    built = []
    for place, jobs, held in (("here", "1", COMPILED), ("elsewhere", "8", COMPILERS)):
        shop = SourceProject(tmp_path / place, upstream_tree, real_depot, held)
        built.append(shop.manifest(shop.build("--jobs", jobs)))
    assert built[0].recipe_key == built[1].recipe_key
    assert built[0].actions == built[1].actions
    files = [{f.path: f.digest for f in manifest.files} for manifest in built]
    assert files[0] == files[1]


EDITING = """
import os
from pathlib import Path
from flashdepot.__main__ import main
from flashdepot.build import library

def edit_and_check(*arguments, check=library._require_device_code):
    with Path(os.environ["EDITED"]).open("a") as file:
        file.write("// edited\\n")
    check(*arguments)

library._require_device_code = edit_and_check
main()
"""
"""flashdepot, and somebody who edits a file when the recipe is made and no compiler has started."""


@pytest.mark.parametrize("part", ["flashdepot itself", "the sources"])
def test_a_library_whose_sources_change_while_it_is_built_is_not_kept(project, tmp_path, part) -> None:
    copy = shutil.copytree(Path(flashdepot.__file__).parent, tmp_path / "copy" / "flashdepot")
    edited = copy / "native/src/error.cpp" if part == "flashdepot itself" else project.source / "toy_bwd.h"
    command = [sys.executable, "-c", EDITING, "build", "--upstream", str(project.tree), *WANTED]
    done = subprocess.run(
        [*command, "--depot", str(project.depot)],
        env={**os.environ, "PYTHONPATH": str(copy.parent), "EDITED": str(edited)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"The library was not kept: {part} in " in done.stderr
    assert not list(Depot(project.depot).artifacts.manifests())


def copy_of_toolkit(project: SourceProject, folder: Path) -> Path:
    """The provided toolkit again, with programs of its own."""
    (root,) = (project.depot / "toolchains").glob("cuda-*")
    shutil.copytree(root / "bin", folder / "bin")
    for name in ("nvvm", "include"):
        (folder / name).symlink_to(root / name)
    return folder


@slow
def test_another_toolkit_recompiles_everything(project, tmp_path) -> None:
    project.build()
    copy = copy_of_toolkit(project, tmp_path / "cuda")
    with (copy / "bin/fatbinary").open("ab") as file:
        file.write(b"another build of it")
    assert project.build("--cuda", str(copy))["units"]["compiled"] == 2


def test_the_shared_library_exports_its_own_symbols_and_needs_only_the_c_library(quick_library) -> None:
    shared = quick_library / "lib/shared/libflashattention.so"
    facts = read_shared_library(shared)
    assert {"fa_fwd", "fa_bwd", "fa_build_info", "fa_last_error"} <= facts.exported
    assert all(name.startswith("fa_") for name in facts.exported)
    assert not [n for n in facts.needed if any(w in n for w in ("cuda", "stdc++", "torch", "python", "gcc_s"))]
    listed = run_program(["nm", "-D", "--defined-only", str(shared)])
    names = {line.split()[-1].split("@")[0] for line in listed.splitlines() if " A " not in line}
    assert names == facts.exported


PROGRAM = """
#include <flash_attention.h>
#include <stdio.h>
int main(void) {
  fa_info info = {0};
  info.size = sizeof info;
  if (fa_build_info(&info) != FA_STATUS_OK) { puts(fa_last_error()); return 1; }
  fa_fwd_args args = {0};
  args.size = sizeof args;
  printf("%d %d\\n", info.version == FA_VERSION, fa_fwd(&args) != FA_STATUS_OK);
  return 0;
}
"""


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_a_c_program_links_a_library_that_was_moved(quick_library, tmp_path, kind) -> None:
    library = tmp_path / "moved"
    shutil.copytree(quick_library, library, symlinks=True)
    (tmp_path / "main.c").write_text(PROGRAM)
    libraries = {
        "shared": ["-lflashattention", f"-Wl,-rpath,{library}/lib/shared"],
        "static": ["-lflashattention", "-ldl"],
    }[kind]
    command = ["gcc", "main.c", "-o", "main", f"-I{library}/include", f"-L{library}/lib/{kind}", *libraries]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert run_program([str(tmp_path / "main")]) == "1 1\n"


def test_the_bill_of_materials_travels_with_the_library(quick_library) -> None:
    document = json.loads((quick_library / "share/sbom/libflashattention.cdx.json").read_text())
    assert document["metadata"]["component"]["name"] == "libflashattention"
    assert {part["name"] for part in document["components"]} >= {"flash-attn", "cutlass", "flashdepot-c-layer"}


def test_the_licences_travel_with_the_library(quick_library) -> None:
    texts = [p.read_text() for p in sorted((quick_library / "share/licenses").rglob("LICENSE"))]
    assert len(texts) >= 2
    assert any("Tri Dao" in text or "FlashAttention" in text or "BSD" in text for text in texts)
    assert any("NVIDIA" in text for text in texts)


def test_cmake_and_pkg_config_files_are_filled_in(quick_library) -> None:
    config = (quick_library / "lib/cmake/FlashAttention/FlashAttentionConfig.cmake").read_text()
    assert 'set(FlashAttention_UPSTREAM_VERSION "2.8.3.post2")' in config
    described = (quick_library / "lib/pkgconfig/flashattention.pc").read_text()
    assert "\nVersion: 2.8.3\n" in described
    assert not re.findall(r"@[A-Z_]+@", config + described)


def test_no_file_of_the_library_names_a_folder_of_this_machine(quick_library, real_depot) -> None:
    for path in quick_library.rglob("*"):
        if path.is_file():
            assert str(real_depot).encode() not in path.read_bytes(), path


@slow
def test_the_object_of_a_unit_is_read_back_verified(project) -> None:
    document = project.build()
    depot = Depot(project.depot)
    for key in project.manifest(document).actions.values():
        record = depot.actions.read(depot.layout.action(key))
        assert record is not None
        assert depot.blobs.find(record.object.digest) is not None


@slow
@pytest.mark.parametrize("damage", ["flip", "truncate", "manifest"])
def test_a_damaged_library_is_made_again_from_the_units(project, damage) -> None:
    first = project.build(command="get")
    manifest = project.manifest(first)
    layout = Depot(project.depot).layout
    shared = next(f for f in manifest.files if f.path.endswith(".so.1"))
    blob = layout.blob(shared.digest) if damage != "manifest" else layout.artifact(manifest.recipe_key)
    {"flip": flip_bit, "truncate": truncate, "manifest": truncate}[damage](blob)
    again = project.build(command="get")
    assert (again["status"], again["units"]["compiled"]) == ("built", 0)
    assert project.manifest(again).files == manifest.files
    assert sha256_file(Path(again["path"]) / shared.path) == shared.digest


def test_without_a_probe_that_works_nothing_long_is_started(project, tmp_path) -> None:
    broken = copy_of_toolkit(project, tmp_path / "cuda")
    (broken / "bin/fatbinary").write_text("#!/bin/sh\necho 'fatbinary: error: no' >&2\nexit 1\n")
    command = [sys.executable, "-m", "flashdepot", "build", "--upstream", str(project.tree), *WANTED]
    done = subprocess.run(
        [*command, "--depot", str(project.depot), "--cuda", str(broken)], capture_output=True, text=True, check=False
    )
    assert_ends(done, 3, "cannot compile a twenty-line program", "--cuda 13.0")
