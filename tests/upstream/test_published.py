"""Published versions of flash-attention and folders of its source: which there are, and how each becomes a tree."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from flashdepot.errors import IntegrityError, MissingToolError, NetworkError, UsageError
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Feature, select
from flashdepot.upstream.source import SourceTree
from support.tools import write_files
from support.upstreams import (
    UNITS,
    cutlass_files,
    default_version,
    find_sdist,
    identify,
    known_versions,
    licences,
    make_folder,
    make_sdist,
    obtain,
    tree_files,
)

FILE = "flash_attn-9.9.9.tar.gz"


def names(root):
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def start(cache, before="pass"):
    """Another process that obtains 9.9.9."""
    code = (
        "import pathlib, sys; from flashdepot.upstream import source as published; from flashdepot.kernels import fa2\n"
        "fa2.DATA = pathlib.Path(sys.argv[2])\n"
        f"{before}\n"
        "print(len(fa2.Fa2.sources.obtain('9.9.9', pathlib.Path(sys.argv[1])).units))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", code, str(cache), str(cache.parent / "sdists.toml")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("index")
def test_a_published_version_becomes_a_tree_of_what_is_needed(cache):
    seen = []
    tree = obtain("9.9.9", cache, on_progress=lambda *step: seen.append(step))
    assert (tree.units, tree.features) == (UNITS, {Feature.DROPOUT, Feature.ALIBI})
    known = identify("9.9.9", cache)
    assert (tree.id, tree.units, tree.features) == (known.id, known.units, known.features)
    found = names(tree.root)
    assert {"csrc/flash_attn/flash_api.cpp", "csrc/cutlass/include/cute/tensor.hpp", "LICENSE", "setup.py"} <= found
    assert not any(part in name for name in found for part in ("composable", "hopper", "cutlass/test"))
    assert (tree.root / "csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.cu").is_file()
    assert (tree.root / "csrc/cutlass/include/cutlass/cutlass.h").is_file()
    assert seen


def test_a_tree_that_is_there_needs_no_network(index, cache, monkeypatch):
    first = obtain("9.9.9", cache)
    asked = len(index.requests)
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert obtain("9.9.9", cache) == first
    assert len(index.requests) == asked


@pytest.mark.usefixtures("index")
def test_a_tree_that_lost_a_file_is_unpacked_again_without_the_network(cache, monkeypatch):
    tree = obtain("9.9.9", cache)
    (tree.root / "csrc/flash_attn/src/flash.h").unlink()
    shutil.rmtree(tree.root / "csrc/cutlass/include/cute")
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert (obtain("9.9.9", cache).root / "csrc/flash_attn/src/flash.h").is_file()
    assert (tree.root / "csrc/cutlass/include/cute/tensor.hpp").is_file()


@pytest.mark.usefixtures("index")
def test_offline_with_an_empty_cache_is_refused(cache, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match="FLASHDEPOT_OFFLINE"):
        obtain("9.9.9", cache)


def test_a_tree_with_other_units_than_on_record_is_refused_and_not_kept(index, pin, cache):
    files = tree_files() | cutlass_files("csrc/cutlass/")
    files.pop("csrc/flash_attn/src/flash_bwd_hdim64_bf16_sm80.cu")
    data = make_sdist(files=files)
    pin(data)
    index.files[FILE] = data
    with pytest.raises(IntegrityError, match=r"11 translation units .* not the 12"):
        obtain("9.9.9", cache)
    assert [p.name for p in cache.iterdir()] == [FILE]


@pytest.mark.usefixtures("index")
def test_a_damaged_archive_in_the_cache_is_fetched_again(cache):
    cache.mkdir()
    (cache / FILE).write_bytes(b"half")
    assert obtain("9.9.9", cache).units == UNITS


@pytest.mark.usefixtures("index")
def test_two_processes_at_once_both_get_the_whole_tree(cache):
    processes = [start(cache) for _ in range(4)]
    assert [p.communicate(timeout=60)[0].strip() for p in processes] == ["12"] * 4
    assert sorted(p.name for p in cache.iterdir() if not p.name.startswith(".")) == sorted(
        [FILE, f"9.9.9-{identify('9.9.9', cache).id.digest[:12]}"]
    )


@pytest.mark.usefixtures("index")
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("moment", ["archive.unpack", "published._read", "fetch.fetch"])
def test_a_kill_in_the_middle_leaves_no_tree_and_the_next_run_completes_it(cache, moment):
    die = (
        f"import os; from flashdepot.files import archive; from flashdepot.net import fetch; real = {moment}\n"
        "def die(*a, **k): real(*a, **k); os.kill(os.getpid(), 9)\n"
        f"{moment} = die"
    )
    process = start(cache, die)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not list(cache.glob("9.9.9-*"))
    assert obtain("9.9.9", cache).units == UNITS


@pytest.mark.usefixtures("index")
def test_the_licence_texts_come_from_the_tree(cache):
    texts = licences(obtain("9.9.9", cache))
    assert texts["flash-attention"].startswith("BSD 3-Clause License")
    assert texts["cutlass"].splitlines() == [
        "Copyright (c) 2017 - 2025 NVIDIA CORPORATION & AFFILIATES. All rights reserved.",
        "",
        "Redistribution and use in source and binary forms, with or without",
        "1. modification",
    ]


@pytest.mark.network
@pytest.mark.skipif("FLASHDEPOT_OFFLINE" in os.environ, reason="FLASHDEPOT_OFFLINE forbids the network")
def test_the_newest_release_is_obtained_from_its_index(cache):
    tree = obtain(known_versions()[-1], cache)
    assert isinstance(tree, SourceTree)
    assert len(tree.units) == 72
    assert tree.features == frozenset(Feature)
    assert "Redistributions in binary form" in licences(tree)["cutlass"]
    assert "*" not in licences(tree)["cutlass"]


def test_the_known_versions_are_in_order_and_the_newest_is_the_default():
    versions = list(map(Version, known_versions()))
    assert versions == sorted(versions)
    assert default_version() == known_versions()[-1]
    assert {"2.7.4.post1", "2.8.0.post2", "2.8.1", "2.8.2", "2.8.3", "2.8.3.post1", "2.8.3.post2"} <= set(
        known_versions()
    )


@pytest.mark.parametrize("version", known_versions())
def test_each_version_is_pinned_and_has_kernels_of_every_profile(version):
    sdist = find_sdist(version)
    assert re.fullmatch(r"[0-9a-f]{64}", sdist.sha256)
    assert sdist.filename == f"flash_attn-{version}.tar.gz"
    assert sdist.features == ALL_FEATURES
    assert all(select(profile, sdist.units).units for profile in PROFILES.values())


@pytest.mark.parametrize(("version", "units", "has_160"), [("2.7.4.post1", 84, True), ("2.8.3.post2", 72, False)])
def test_the_units_are_those_of_the_version(version, units, has_160):
    sdist = find_sdist(version)
    assert len(sdist.units) == units
    assert (160 in {u.head_dim for u in sdist.units}) is has_160


def test_a_version_is_exactly_that_release(tmp_path):
    assert identify("2.8.3", tmp_path).id.version == "2.8.3"
    assert identify("2.8.3", tmp_path).id != identify("2.8.3.post2", tmp_path).id


def test_a_published_version_is_identified_without_network_or_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    found = identify("2.8.3.post2", tmp_path / "cache")
    assert found.id.commits == {}
    assert found.id.origin == "sdist"
    assert len(found.units) == 72
    assert not (tmp_path / "cache").exists()


def test_an_unknown_version_is_answered_with_those_that_are_known(tmp_path):
    with pytest.raises(UsageError, match=r"'2\.9\.9' is neither.*2\.7\.4\.post1.*2\.8\.3\.post2"):
        identify("2.9.9", tmp_path)


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "flash-attention")


def digest(folder, cache):
    return identify(str(folder), cache).id.digest


def test_a_folder_is_used_in_place_with_its_own_version(folder, cache):
    tree = obtain(str(folder), cache)
    assert tree.root == folder
    assert tree.units == UNITS
    assert (tree.id.version, tree.id.origin) == ("9.9.9", "folder")
    assert tree == identify(str(folder), cache)
    assert not cache.exists()


def test_a_relative_folder_is_found(folder, cache, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert obtain(folder.name, cache).root == folder
    assert obtain(f"./{folder.name}", cache).root == folder


def test_times_and_permissions_do_not_change_the_digest(folder, cache):
    before = digest(folder, cache)
    header = folder / "csrc/flash_attn/src/flash.h"
    os.utime(header, (1, 1))
    header.chmod(0o600)
    assert digest(folder, cache) == before


USED = (
    "csrc/flash_attn/src/flash.h", "csrc/flash_attn/src/new/deep.h", "csrc/flash_attn/flash_api.cpp",
    "csrc/cutlass/include/cute/tensor.hpp", "flash_attn/flash_attn_interface.py", "README.md", "LICENSE",
)  # fmt: skip
UNUSED = ("setup.py", "csrc/composable_kernel/big.hpp", "hopper/x.h", "csrc/flash_attn/src/.flash.h.swp", "notes.txt")


@pytest.mark.parametrize("name", USED + UNUSED)
def test_a_byte_of_a_kernel_or_of_the_python_package_changes_the_digest_and_no_other(folder, cache, name):
    before = digest(folder, cache)
    write_files(folder, {name: "changed"})
    assert (digest(folder, cache) != before) == (name in USED)


def test_the_same_bytes_in_another_place_have_the_same_digest(folder, cache, tmp_path):
    other = make_folder(tmp_path / "elsewhere" / "copy")
    assert digest(other, cache) == digest(folder, cache)
    source = other / "csrc/flash_attn/src"
    (source / "flash.h").rename(source / "renamed.h")
    assert digest(other, cache) != digest(folder, cache)


def test_a_folder_without_a_version_says_unknown(folder, cache):
    (folder / "flash_attn/__init__.py").write_text("__version__ = '../../etc'\n")
    assert identify(str(folder), cache).id.version == "unknown"


@pytest.mark.parametrize("name", ["cutlass/numeric_types.h", "cute/tensor.hpp"])
def test_a_folder_without_cutlass_is_refused_with_how_to_get_it(folder, cache, name):
    (folder / "csrc/cutlass/include" / name).unlink()
    with pytest.raises(MissingToolError, match=f"lacks CUTLASS.*{name}.*ZIP") as caught:
        identify(str(folder), cache)
    assert "git submodule update --init csrc/cutlass" in caught.value.hint


def test_another_project_is_not_accepted_as_source(tmp_path, cache):
    write_files(tmp_path / "other", {"setup.py": "", "csrc/flash_attn/src/flash.h": ""})
    with pytest.raises(UsageError, match=r"not a source tree of flash-attention.*flash_fwd_hdim64_bf16_sm80\.cu"):
        obtain(str(tmp_path / "other"), cache)


def test_a_source_folder_that_is_not_there_is_named(tmp_path, cache):
    with pytest.raises(UsageError, match="There is no folder"):
        obtain(str(tmp_path / "missing"), cache)


def test_cutlass_own_licence_file_is_preferred(folder, cache):
    write_files(folder, {"csrc/cutlass/LICENSE.txt": "the file's text\n"})
    assert licences(obtain(str(folder), cache))["cutlass"] == "the file's text\n"


def test_a_tree_without_its_licence_is_refused(folder, cache):
    (folder / "LICENSE").unlink()
    with pytest.raises(UsageError, match="LICENSE has no licence text"):
        licences(obtain(str(folder), cache))


def test_a_cutlass_without_a_licence_is_refused(folder, cache):
    write_files(folder, {"csrc/cutlass/include/cutlass/cutlass.h": "/* Basic include. */\n"})
    with pytest.raises(UsageError, match=r"cutlass\.h has no licence text"):
        licences(obtain(str(folder), cache))
