"""What ``vendor`` writes into a project."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.link.vendor_folder import attribute_lines, with_lines
from support.tools import flashdepot_here, needs
from vendor.vendor_tools import FOLDER, check, for_target, tree, vendor, vendored

pytestmark = pytest.mark.nvcc


def test_the_library_its_manifest_and_licences_are_there_and_the_index_lists_them(quick_library, project) -> None:
    folder = vendored(quick_library, project)
    assert folder == project / "prebuilt" / FOLDER
    assert (folder / "manifest.json").read_bytes() == (quick_library / "manifest.json").read_bytes()
    assert (folder / "share/licenses/flash-attention/LICENSE").is_file()
    index = json.loads((project / "prebuilt/vendor.json").read_text())
    assert [target["folder"] for target in index["targets"]] == [FOLDER]
    assert check(project)[0] == 0


def test_it_is_the_library_that_get_takes_from_the_depot(quick_library, real_depot, project) -> None:
    selection = ("--profile", "quick", "--arch", "80,90", "--depot", str(real_depot))
    done = vendor("third_party/flash", *selection, "--json", cwd=project)
    document = json.loads(done.stdout)
    assert document["path"] == str(project / "third_party/flash" / FOLDER)
    assert Path(document["manifest"]).read_bytes() == (quick_library / "manifest.json").read_bytes()


def test_targets_lie_side_by_side(quick_library, project, tmp_path) -> None:
    windows = for_target(quick_library, tmp_path / "win", lambda m: m.update(platform="windows-x86_64", sass=["120"]))
    older = for_target(
        quick_library, tmp_path / "old", lambda m: m.update(cuda="12.8", toolchain=m["toolchain"] | {"cuda": "12.8"})
    )
    for library in (quick_library, windows, older):
        vendored(library, project)
    status, report = check(project)
    assert status == 0
    assert {target["folder"]: target["status"] for target in report["targets"]} == {
        FOLDER: "fits",
        "linux-x86_64-cu12-sm80-90": "fits",
        "windows-x86_64-cu13-sm120": "for another platform",
    }


def test_the_same_again_touches_nothing(quick_library, project) -> None:
    vendored(quick_library, project)
    before = tree(project)
    assert json.loads(vendor("--library", quick_library, "--json", cwd=project).stdout)["status"] == "unchanged"
    assert tree(project) == before


@pytest.mark.parametrize("damage", ["missing", "index"])
def test_the_same_again_fixes_what_was_damaged(quick_library, project, target, damage) -> None:
    wrong = target / "lib/static/libflashattention.a"
    if damage == "missing":
        wrong.unlink()
    else:
        (project / "prebuilt/vendor.json").unlink()
    vendored(quick_library, project)
    assert check(project)[0] == 0


def test_what_is_not_ours_stays(quick_library, project, tmp_path) -> None:
    prebuilt = project / "prebuilt"
    (prebuilt / "other").mkdir(parents=True)
    (prebuilt / "other/thing.bin").write_bytes(b"mine")
    (prebuilt / "README").write_text("mine")
    folder = vendored(quick_library, project)
    (folder / "include/mine.h").write_text("mine")
    other = for_target(quick_library, tmp_path / "other", lambda m: m["flags"].update(fa2=["-O2"]))
    vendored(other, project)
    assert (prebuilt / "other/thing.bin").read_bytes() == b"mine"
    assert (prebuilt / "README").read_text() == "mine"
    assert (folder / "include/mine.h").read_text() == "mine"
    status, report = check(project)
    assert (status, report["targets"][0]["extra"]) == (0, ["include/mine.h"])


def test_a_folder_of_the_users_in_place_of_a_target_is_refused(quick_library, project) -> None:
    mine = project / "prebuilt" / FOLDER
    mine.mkdir(parents=True)
    (mine / "thesis.tex").write_text("years of work")
    done = vendor("--library", quick_library, cwd=project)
    assert done.returncode == 2
    assert "thesis.tex" in done.stderr
    assert [p.name for p in (project / "prebuilt").iterdir()] == [FOLDER]


def test_a_build_takes_the_target_for_its_host_from_the_vendored_folder(quick_library, project, tmp_path) -> None:
    windows = for_target(quick_library, tmp_path / "win", lambda m: m.update(platform="windows-x86_64"))
    for library in (windows, quick_library):
        vendored(library, project)
    done = flashdepot_here("link", "cmake", "--prefix", "--library", "prebuilt", cwd=project)
    assert done.stdout == f"{project / 'prebuilt' / FOLDER}\n", done.stderr


@pytest.mark.parametrize(
    ("existing", "kept"),
    [
        (b"", b""),
        (b"*.png binary\n", b"*.png binary\n"),
        (b"*.png binary", b"*.png binary\n"),
        (b"# a comment\r\n*.png binary\r\n", b"# a comment\r\n*.png binary\r\n"),
        (b"/t/** -text\n*.png binary\n", b"/t/** -text\n*.png binary\n"),
    ],
)
def test_lines_are_added_to_gitattributes_and_none_is_lost(existing, kept) -> None:
    wanted = attribute_lines("t")
    found = with_lines(existing, wanted)
    assert found.startswith(kept)
    assert [line for line in found.decode().splitlines() if line.startswith("/t/")] == list(wanted)
    assert with_lines(found, wanted) == found, "once is enough"
    if b"\r\n" in existing:
        assert b"\n" not in found.replace(b"\r\n", b"")


def test_only_libraries_go_to_git_lfs(target, project) -> None:
    lines = (project / "prebuilt/.gitattributes").read_text().splitlines()
    assert [line.split()[0] for line in lines if "filter=lfs" in line] == [
        f"/{FOLDER}/lib/shared/*",
        f"/{FOLDER}/lib/static/*",
    ]


@needs("cmake")
def test_cmake_takes_the_library_of_its_platform_from_the_folder(target, tmp_path) -> None:
    prebuilt = target.parent
    shutil.copytree(target, prebuilt / target.name.replace("x86_64", "aarch64"), symlinks=True)
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\nfind_package(FlashAttention 2 REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(f"{lines}message(STATUS is=${{FlashAttention_INCLUDE_DIR}})\n")

    def configure(*options: str) -> str:
        shutil.rmtree(tmp_path / "build", ignore_errors=True)  # CMake keeps what it found
        command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prebuilt}", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return " ".join((done.stdout + done.stderr).split())

    assert f"is={target}/include" in configure()
    riscv = configure("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64")
    assert "has no library for linux-riscv64" in riscv
    shutil.copytree(target, target.with_name(f"{target.name}-120"), symlinks=True)
    assert "name one with FlashAttention_FOLDER" in configure()
    assert f"is={target}-120/include" in configure(f"-DFlashAttention_FOLDER={target.name}-120")
