"""A source folder holds links, pipes, devices and endless files: nothing outside it is read, and nothing hangs."""

import os
import shutil
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from flashdepot.build.farm import handed_out
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels.fa2 import Fa2, Fa2Layout
from flashdepot.upstream.source import SourceTree, source_digest
from support.upstreams import make_folder

SECRET = "a-secret-of-the-user"  # noqa: S105  (that is what it is called)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and links")

PLACES = (
    "LICENSE",
    "AUTHORS",
    "README.md",
    "csrc/cutlass/LICENSE.txt",
    "csrc/cutlass/include/cutlass/cutlass.h",
    "csrc/flash_attn/src/static_switch.h",
    "csrc/flash_attn/src/new.h",
    "csrc/flash_attn/flash_api.cpp",
    "flash_attn/__init__.py",
    "flash_attn/key.py",
    "flash_attn/new",
    "csrc/flash_attn/src/new",
)


def link_to_a_file(path: Path) -> None:
    path.symlink_to(Path(os.environ["HOUSE"]) / "secret")


def link_to_a_folder(path: Path) -> None:
    path.symlink_to("/")


def link_in_the_tree(path: Path) -> None:
    path.symlink_to("setup.py")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def endless_file(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def listener(path: Path) -> None:
    os.chdir(path.parent)  # a socket's path may have 100 letters
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


PLANTS: tuple[Callable[[Path], None], ...] = (
    link_to_a_file,
    link_to_a_folder,
    link_in_the_tree,
    link_to_itself,
    endless_file,
    pipe,
    sparse,
    listener,
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOUSE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    return make_folder(tmp_path / "tree")


def everything_read(root: Path) -> bytes:
    """All that any reader takes of a tree."""
    files, family = PlainFiles(root), Fa2()
    texts = [*family.licences(files).values(), *(files.text(name) for name in family.python_files(files))]
    texts += [files.text("AUTHORS"), files.text("README.md")]
    bundle = handed_out({"fa2": files}, {})["upstream"]
    return "".join(texts).encode() + b"".join(read() for read in bundle.values())


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_a_file_of_the_tree_is_refused_by_its_name(tree, place, plant) -> None:
    path = tree / place
    path.unlink(missing_ok=True)
    plant(path)
    readers: list[Callable[[Path], object]] = [everything_read]
    if place != "csrc/cutlass/LICENSE.txt":  # no compiler needs it
        readers.append(partial(SourceTree.read, Fa2Layout()))
    for reads in readers:
        with pytest.raises(FlashdepotError) as caught:
            reads(tree)
        assert SECRET not in str(caught.value)
        assert place in caught.value.message


@pytest.mark.parametrize("folder", ["csrc", "csrc/flash_attn", "csrc/flash_attn/src", "csrc/cutlass", "flash_attn"])
def test_a_folder_of_the_tree_that_is_a_link_is_refused(tree, folder) -> None:
    (tree / folder).rename(tree.parent / "elsewhere")
    (tree / folder).symlink_to(tree.parent / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link") as caught:
        SourceTree.read(Fa2Layout(), tree)
    assert f"cp -rL {tree}" in caught.value.hint


def test_a_copy_without_links_serves_as_the_message_says(tree) -> None:
    before = source_digest(Fa2Layout(), PlainFiles(tree))
    (tree / "csrc" / "cutlass").rename(tree.parent / "cutlass")
    (tree / "csrc" / "cutlass").symlink_to(tree.parent / "cutlass")
    shutil.copytree(tree, tree.parent / "copy")
    assert SourceTree.read(Fa2Layout(), tree.parent / "copy").id.digest == before


def test_links_on_the_way_to_the_tree_and_next_to_its_sources_are_the_users_own(tree) -> None:
    before = source_digest(Fa2Layout(), PlainFiles(tree))
    (tree / "AGENTS.md").symlink_to("/")  # as upstream has one
    (tree / "csrc" / "cutlass" / ".git").write_text("gitdir: ../../.git/modules/csrc/cutlass\n")
    (tree / "flash_attn" / ".#edited.py").symlink_to("user@host.1234")
    (tree.parent / "named").symlink_to(tree)
    assert SourceTree.read(Fa2Layout(), tree.parent / "named").id.digest == before


def test_a_file_that_becomes_a_link_meanwhile_is_not_read(tree) -> None:
    bundle = handed_out({"fa2": PlainFiles(tree)}, {})["upstream"]
    (tree / "LICENSE").unlink()
    (tree / "LICENSE").symlink_to(tree.parent / "secret")
    with pytest.raises(UsageError, match="LICENSE"):
        bundle["LICENSE"]()


def test_more_files_than_any_source_has_are_refused(tree, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.files.directory._FILES", 5)
    with pytest.raises(UsageError, match="more than 5 files"):
        source_digest(Fa2Layout(), PlainFiles(tree))
