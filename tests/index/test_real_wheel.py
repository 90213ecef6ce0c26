"""From a depot with a library that a real compiler made, by way of an index, into an environment, with pip and uv."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from flashdepot.binary.wheel import read_wheel
from flashdepot.files.atomic import read_json
from flashdepot.model.index_record import RECORD_NAME
from index.test_installers import INSTALLERS, run
from support.servers import serve_site

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def site(flashdepot: Any, quick_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of all that the real depot has."""
    return Path(flashdepot("index", str(tmp_path_factory.mktemp("real") / "public"))["path"])


@pytest.mark.parametrize("command", INSTALLERS)
def test_what_was_compiled_here_is_installed_by_hash_from_the_index(
    command: tuple[str, ...], site: Path, quick_library: Path, tmp_path: Path
) -> None:
    manifest = read_json(quick_library / "manifest.json")
    (row,) = (row for row in read_json(site / RECORD_NAME)["wheels"] if row["recipe_key"] == manifest["recipe_key"])
    assert read_wheel(site / "files" / row["filename"], lambda *_: None).problems == ()
    (tmp_path / "lock.txt").write_text(f"flash-attn=={row['version']} --hash=sha256:{row['sha256']}\n")
    with serve_site(site) as url:
        words = ["--no-deps", "--target", "to", "--index-url", f"{url}simple/", "--require-hashes", "-r", "lock.txt"]
        run(*command, *words, cwd=tmp_path)
    ours = {Path(file["path"]).name: file["digest"] for file in manifest["files"] if "digest" in file}
    library = tmp_path / "to" / "flash_attn_2_cuda" / "lib" / "libflashattention.so.1"
    assert hashlib.sha256(library.read_bytes()).hexdigest() == ours[library.name]
    assert (tmp_path / "to" / "flash_attn" / "flash_attn_interface.py").is_file()
