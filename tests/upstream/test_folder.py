import os

import pytest

from flashdepot.errors import MissingToolError, UsageError
from support.upstreams import UNITS, identify, licences, make_folder, obtain, write_files


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
    assert tree.identified == identify(str(folder), cache)
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


@pytest.mark.parametrize(
    "name",
    ["setup.py", "csrc/composable_kernel/big.hpp", "hopper/x.h", "csrc/flash_attn/src/.flash.h.swp", "notes.txt"],
)
def test_a_file_that_nothing_is_made_of_does_not_change_the_digest(folder, cache, name):
    before = digest(folder, cache)
    write_files(folder, {name: "changed"})
    assert digest(folder, cache) == before


@pytest.mark.parametrize(
    "name",
    [
        "csrc/flash_attn/src/flash.h",
        "csrc/flash_attn/src/new/deep.h",
        "csrc/flash_attn/flash_api.cpp",
        "csrc/cutlass/include/cute/tensor.hpp",
        "flash_attn/flash_attn_interface.py",
        "README.md",
        "LICENSE",
    ],
)
def test_a_byte_of_a_kernel_or_of_the_python_package_changes_the_digest(folder, cache, name):
    before = digest(folder, cache)
    write_files(folder, {name: "changed"})
    assert digest(folder, cache) != before


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
