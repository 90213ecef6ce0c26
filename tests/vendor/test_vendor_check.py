"""What ``vendor --check`` finds: damage, what changed, and whether a rebuild is needed."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.api.acquire import open_depot
from flashdepot.api.libraries import link
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, UsageError
from flashdepot.link.vendor_folder import read_index
from flashdepot.model.host import CudaToolkit, Gpu
from flashdepot.model.request import LibraryRequest
from flashdepot.model.target import Architecture, Platform, Version
from support.depots import flip_bit
from support.toolkits import make_host
from support.tools import assert_ends, flashdepot_here
from vendor.vendor_tools import FOLDER, check, for_target, save, vendor, vendored

pytestmark = pytest.mark.nvcc

H100 = Gpu("NVIDIA H100", Architecture(9, 0), 80 << 30)
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", Architecture(12, 0), 32 << 30)
TOOLKIT_12 = CudaToolkit("/usr/local/cuda", Version("12.4.131"), "PATH")
GOOD = make_host(driver="580.95.05", gpus=(H100,))


@pytest.mark.parametrize(
    ("host", "status", "reason"),
    [
        (GOOD, 0, ""),
        (make_host(driver="580.95.05", gpus=(RTX_5090,)), 4, "none that runs on sm_120"),
        (replace(make_host(driver="550.54.15", gpus=(H100,)), driver_cuda=Version("12.4")), 4, "needs NVIDIA driver"),
    ],
    ids=["H100", "Blackwell", "old driver"],
)
def test_a_host_that_it_cannot_serve_is_a_reason_to_rebuild(target, project, tmp_path, host, status, reason) -> None:
    found, report = check(project, "--host", save(host, tmp_path / "host.json"))
    assert (found, report["exit_code"], report["rebuild"]) == (status, status, status == 4)
    assert reason in " ".join(report["targets"][0]["reasons"])
    fix = report["targets"][0]["fix"]
    assert fix.startswith("flashdepot vendor prebuilt --passes fwd --head-dims 64") if status else fix == ""


def test_the_command_for_a_machine_that_was_named_names_it_again_and_is_accepted(target, project, monkeypatch) -> None:
    monkeypatch.delenv("FLASHDEPOT_CUDA_ARCHIVES")
    words = shlex.split(check(project, "--gpu", "9.0", "--driver", "570")[1]["targets"][0]["fix"])
    assert words[-4:] == ["--gpu", "9.0", "--driver", "570"]
    done = vendor(*words[2:], "--dry-run", cwd=project)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "change", [lambda m: m.update(c_layer="0" * 64), lambda m: m["upstreams"]["fa2"].update(version="2.8.0")]
)
def test_another_flashdepot_is_not_a_reason(quick_library, project, tmp_path, change) -> None:
    vendored(for_target(quick_library, tmp_path / "older", change), project)
    status, report = check(project, "--host", save(replace(GOOD, toolkits=(TOOLKIT_12,)), tmp_path / "host.json"))
    assert (status, report["targets"][0]["reasons"]) == (0, [])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ('profile = "quick"\ndtypes = ["bf16", "fp16"]', "lacks fwd_hdim64_fp16"),
        ('cuda = "12.8"', "made with CUDA 13, and 12 was asked for"),
    ],
)
def test_what_the_projects_file_asks_for_counts(target, project, words, reason) -> None:
    (project / "flashdepot.toml").write_text(words)
    status, report = check(project)
    assert status == 4
    assert reason in " ".join(report["targets"][0]["reasons"])
    assert report["targets"][0]["fix"].startswith("flashdepot vendor prebuilt")


def test_one_target_that_serves_is_enough(quick_library, project, tmp_path) -> None:
    other = for_target(quick_library, tmp_path / "other", lambda m: m.update(sass=["120"]))
    for library in (quick_library, other):
        vendored(library, project)
    status, report = check(project, "--host", save(GOOD, tmp_path / "host.json"))
    assert (status, report["rebuild"]) == (0, False)
    assert sorted(t["status"] for t in report["targets"]) == ["does not fit", "fits"]


def test_only_targets_for_other_platforms_serve_nobody_here(quick_library, project, tmp_path) -> None:
    vendored(for_target(quick_library, tmp_path / "win", lambda m: m.update(platform="windows-x86_64")), project)
    status, report = check(project)
    assert (status, report["status"], report["rebuild"]) == (4, "for another platform", True)
    assert "fix: flashdepot vendor prebuilt" in vendor("--check", cwd=project).stdout


def test_a_target_chooses_among_the_libraries_of_a_tree_and_holds_a_folder_to_it(
    quick_library, project, tmp_path
) -> None:
    windows = for_target(quick_library, tmp_path / "win", lambda m: m.update(platform="windows-x86_64"))
    made = {name: vendored(library, project) for name, library in (("linux", quick_library), ("windows", windows))}
    depot = open_depot(tmp_path / "depot")
    for system, folder in made.items():
        target = LibraryRequest(target=Platform(system, "x86_64"))
        assert link(target, library=project / "prebuilt", host=GOOD, depot=depot).root == folder
        assert link(target, library=folder, host=GOOD, depot=depot).root == folder
    arm = LibraryRequest(target=Platform("linux", "aarch64"))
    with pytest.raises(IncompatibleError, match="no library for linux-aarch64") as refused:
        link(arm, library=project / "prebuilt", host=GOOD, depot=depot)
    assert refused.value.hint.endswith("--target linux-aarch64")
    with pytest.raises(IncompatibleError, match="is for windows-x86_64, and --target says linux-aarch64"):
        link(arm, library=made["windows"], host=GOOD, depot=depot)
    with pytest.raises(UsageError, match="both were given"):
        link(replace(arm, upstream="2.8.3"), library=project / "prebuilt", host=GOOD, depot=depot)


@pytest.mark.parametrize(
    ("path", "damage", "fault", "seen"),
    [
        ("lib/static/libflashattention.a", flip_bit, "changed", "SHA-256 is not the manifest's"),
        ("lib/static/libflashattention.a", lambda p: os.truncate(p, 1000), "changed", "cut off: 1000 bytes of"),
        ("lib/static/libflashattention.a", Path.unlink, "missing", "not there"),
        ("lib/shared/libflashattention.so", Path.unlink, "missing", "no symbolic link"),
        ("lib/shared", shutil.rmtree, "missing", "not there"),
        ("manifest.json", Path.unlink, "missing", "not there"),
        ("manifest.json", lambda p: p.write_text("{"), "changed", "SHA-256 is not the manifest's"),
        ("manifest.json", lambda p: p.write_text(p.read_text().replace('"90"', '"120"')), "changed", "SHA-256"),
        (
            "include/flash_attention.h",
            lambda p: p.write_bytes(p.read_bytes().replace(b"\n", b"\r\n")),
            "line endings",
            "CRLF",
        ),
        (
            "lib/static/libflashattention.a",
            lambda p: (p.unlink(), p.symlink_to("/dev/zero")),
            "changed",
            "symbolic link",
        ),
        ("lib/static/libflashattention.a", lambda p: (p.unlink(), os.mkfifo(p)), "missing", "not a regular file"),
    ],
)
def test_a_damaged_file_is_named(target, project, path, damage, fault, seen) -> None:
    damage(target / path)
    status, report = check(project)
    assert (status, report["status"]) == (6, "damaged")
    found = report["targets"][0]["faults"]
    assert any(f["path"].startswith(path) and f["fault"] == fault and seen in f["seen"] for f in found), found
    of_git, _, again = report["targets"][0]["fix"].partition("   # not in git yet: ")
    assert "git checkout -- prebuilt/" in of_git
    assert (again.startswith("rm -r prebuilt/"), " --arch 80" in again) == (path != "manifest.json",) * 2


def test_a_link_that_git_wrote_as_text_is_a_link(target, project) -> None:
    link = target / "lib/shared/libflashattention.so"
    link.unlink()
    link.write_text("libflashattention.so.1")
    assert check(project)[0] == 0


def test_damage_in_any_target_outweighs_one_that_serves(quick_library, project, tmp_path) -> None:
    windows = for_target(quick_library, tmp_path / "win", lambda m: m.update(platform="windows-x86_64"))
    damaged = vendored(windows, project)
    vendored(quick_library, project)
    (damaged / "include/flash_attention.h").unlink()
    assert check(project)[0] == 6


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 6, "is damaged: it is not JSON"),
        ('{"schema": 1, "kind": "vendored libraries", "targ', 6, "is damaged: it is not JSON"),
        ("[" * 100_000, 6, "is damaged"),
        ("[]", 2, "was not written by flashdepot"),
        ('{"kind": "npm"}', 2, "was not written by flashdepot"),
        ('{"kind": "vendored libraries", "schema": 99}', 6, "cannot be used: its schema is 99, and this"),
        ('{"kind": "vendored libraries", "schema": 1}', 6, "cannot be used"),
        ('{"kind": "vendored libraries", "schema": 1, "targets": [1]}', 6, "cannot be used"),
        ('{"kind": "vendored libraries", "schema": 1, "targets": [{"folder": 1}]}', 6, "folder is 1: expected a text"),
    ],
)
def test_an_index_that_cannot_be_is_refused(tmp_path, text, code, said) -> None:
    (tmp_path / "vendor.json").write_text(text)
    with pytest.raises(FlashdepotError) as caught:
        read_index(tmp_path)
    assert caught.value.exit_code == code
    assert said in caught.value.message
    assert "flashdepot vendor" in caught.value.hint


@pytest.mark.parametrize("arguments", [["--check"], ["--library"]])
def test_a_truncated_index_is_neither_read_nor_overwritten(quick_library, project, arguments) -> None:
    (project / "prebuilt").mkdir()
    index = project / "prebuilt/vendor.json"
    index.write_text('{"schema": 1, "kind": "vendored libraries", "targ')
    done = vendor(*arguments, *([quick_library] if arguments == ["--library"] else []), cwd=project)
    assert_ends(done, 6, "vendor.json is damaged", "Restore it from version control")
    assert [p.name for p in index.parent.iterdir()] == ["vendor.json"]
    assert index.read_text().endswith("targ")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("folder", "../../etc", "is not the name of a folder next to it"),
        ("folder", "/etc", "is not the name of a folder next to it"),
        ("folder", "..", "is not the name of a folder next to it"),
        ("folder", "C:", "is not the name of a folder next to it"),
        ("manifest", "abc", "is not a SHA-256"),
        ("platform", "linux", "is not a platform"),
        ("cuda", "new", "is not a version number"),
        ("sass", ["hopper"], "is not a GPU architecture"),
        ("sass", None, "cannot be used"),
    ],
)
def test_an_index_that_points_elsewhere_is_refused(target, project, field, value, said) -> None:
    path = project / "prebuilt/vendor.json"
    index = json.loads(path.read_text())
    index["targets"][0][field] = value
    path.write_text(json.dumps(index))
    with pytest.raises(IntegrityError, match=said):
        read_index(path.parent)


def test_a_folder_without_an_index_learns_how_to_get_one(project) -> None:
    done = vendor("--check", cwd=project)
    assert_ends(done, 2, "flashdepot vendor prebuilt")


def test_people_read_the_same_verdict(target, project) -> None:
    done = vendor("--check", cwd=project)
    blind = "prebuilt: fits; its machine code was not compared with a GPU, since none is here or was named: --gpu 9.0"
    assert done.stdout.splitlines()[:2] == [blind, f"  {FOLDER}: fits"]
    done = vendor("--check", "--gpu", "9.0", cwd=project)
    assert done.stdout.splitlines()[:2] == ["prebuilt: fits", f"  {FOLDER}: fits"]


def test_a_gpu_that_no_library_serves_gets_no_command(target, project) -> None:
    fix = check(project, "--gpu", "7.5", "--driver", "580")[1]["targets"][0]["fix"]
    assert fix == "Use a GPU from the A100 or RTX 30 on; on older ones, PyTorch's own attention works."


def test_check_reads_the_libraries_of_a_vendored_folder(target, project) -> None:
    words = ("check", "prebuilt", "--gpu", "9.0", "--driver", "580", "--json")
    done = flashdepot_here(*words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert [Path(file["file"]).parts[-4:-2] for file in json.loads(done.stdout)["files"]] == [(FOLDER, "lib")] * 2


def test_a_library_that_a_named_compiler_made_serves_who_vendored_it(quick_library, project, tmp_path) -> None:
    vendored(for_target(quick_library, tmp_path / "own", lambda m: m["toolchain"].update(named=True)), project)
    (project / "flashdepot.toml").write_text('profile = "quick"\ncuda = "13.0"\n')
    status, report = check(project, "--host", save(GOOD, tmp_path / "host.json"))
    assert (status, report["targets"][0]["reasons"]) == (0, [])
