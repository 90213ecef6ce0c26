"""A stored library is found by what it can do, through the whole command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import flashdepot
from flashdepot.depot import Depot
from flashdepot.depot.libraries import ARTIFACT_SCHEMA
from flashdepot.files.documents import write_record
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.selection import PROFILES, Profile, select
from flashdepot.model.target import Architecture, Version
from support.depots import flip_bit, store_library
from support.recipes import architectures
from support.toolkits import make_host
from support.tools import flashdepot_here, posix
from support.upstreams import default_version, find_sdist

H100 = Gpu("NVIDIA H100", Architecture(9, 0), 80 * 10**9)
RTX_5090 = Gpu("NVIDIA RTX 5090", Architecture(12, 0), 32 * 10**9)

NOTHING_AROUND = {
    "PATH": "/nowhere",
    "HOME": "/nowhere",
    "FLASHDEPOT_OFFLINE": "1",
    "PYTHONPATH": str(Path(flashdepot.__file__).parents[1]),
}


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    """A depot with one library: inference, head dim 64, bf16, for 8.0 and 9.0."""
    known = find_sdist(default_version()).identified
    inference = PROFILES["inference"]
    narrow = Profile(inference.passes, frozenset({64}), PROFILES["quick"].dtypes, inference.features)
    store_library(
        Depot(tmp_path / "depot"),
        tmp_path / "files",
        upstreams={"fa2": known.id},
        selection=select(narrow, known.units),
        sass=architectures("80,90"),
        driver_floor=Version("580"),
        libc_floor=Version("2.35"),
    )
    return tmp_path / "depot"


def get(depot: Path, host: HostRecord, *arguments: str) -> tuple[int, Any, str]:
    record = depot.parent / "host.json"
    record.write_text(json.dumps(host.to_json()))
    words = ("--profile", "quick", "--json", "--depot", depot, "--host", record, *arguments)
    done = flashdepot_here("get", *words, **NOTHING_AROUND)
    return done.returncode, json.loads(done.stdout), done.stderr


BARE = make_host(gcc=(), driver="580.95")


def test_a_library_that_can_do_more_is_a_hit_on_a_machine_without_any_compiler(depot) -> None:
    code, document, _ = get(depot, BARE, "--arch", "80")
    assert (code, document["status"]) == (0, "hit")
    assert document["units"] == {"total": 2, "compiled": 0, "reused": 2}
    library = Path(document["path"])
    assert (library / "lib/shared/libflashattention.so").resolve().is_file()
    assert json.loads(Path(document["manifest"]).read_text())["recipe_key"] == document["recipe_key"]


@posix("time of a file's change, so that a hit imports more")
def test_a_hit_imports_nothing_of_what_builds_links_downloads_or_looks_for_tools(depot) -> None:
    record = depot.parent / "host.json"
    record.write_text(json.dumps(BARE.to_json()))
    words = ["flashdepot", "get", "--profile", "quick", "--arch", "80", "--depot", str(depot), "--host", str(record)]
    code = (
        "import sys\n"
        "import click, ctypes, hashlib, json, locale, msgspec, pathlib, platform\n"
        "before = set(sys.modules)\n"
        "from flashdepot.cli import run\n"
        "from flashdepot.host import runtime_facts\n"
        "runtime_facts()\n"
        f"sys.argv = {words}\n"
        "status = run()\n"
        "print(*sorted(set(sys.modules) - before), sep='\\n', file=sys.stderr)\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=NOTHING_AROUND)
    assert done.returncode == 0, done.stderr
    assert str(depot) in done.stdout
    imported = set(done.stderr.splitlines())
    assert "flashdepot.kernels.fa2" in imported
    folders = tuple(f"flashdepot.{name}" for name in ("binary", "build", "diagnose", "net", "process", "toolchain"))
    assert sorted(m for m in imported if m in UNWANTED or m.startswith(folders)) == []


UNWANTED = {
    *(f"flashdepot.depot.{name}" for name in ("actions", "export", "gc", "verify")),
    *(f"flashdepot.host.{name}" for name in ("memory", "python_environment", "surroundings", "tools")),
    *(f"flashdepot.files.{name}" for name in ("locks", "output_folder", "trust", "user_files")),
    *(f"flashdepot.{name}" for name in ("kernels.actions", "kernels.fa2.actions", "model.remote", "upstream.folder")),
    *("click.shell_completion", "packaging", "platformdirs", "psutil", "pypi_simple", "re2", "requests", "rich"),
    *("dataclasses", "random", "secrets", "shutil", "subprocess", "tarfile", "tempfile", "tomllib", "zipfile"),
}
"""What a hit does without. A module that only a type needs goes under ``TYPE_CHECKING``."""


def test_the_gpus_that_are_present_decide_when_none_is_named(depot) -> None:
    assert get(depot, replace(BARE, gpus=(H100,)))[1]["status"] == "hit"


@pytest.mark.parametrize(
    ("host", "options", "reason"),
    [
        (replace(BARE, gpus=(H100, RTX_5090)), (), "has machine code for 80,90, none that runs on sm_120"),
        (replace(BARE, gpus=(H100,)), ("--head-dims", "64,128"), "lacks fwd_hdim128_bf16, fwd_hdim128_bf16_causal"),
    ],
    ids=["one of two GPUs", "another head dim"],
)
def test_a_library_that_does_not_serve_is_not_taken_and_the_reason_is_printed(depot, host, options, reason) -> None:
    """For all the reasons: tests/depot/test_depot_match.py."""
    code, document, said = get(depot, host, *options)
    assert code != 0
    assert document["status"] == "error"
    assert f"was not taken: it {reason}" in said


def test_a_damaged_library_is_not_taken_and_its_damage_is_reported(depot) -> None:
    for manifest in Depot(depot).artifacts.manifests():
        flip_bit(Depot(depot).layout.blob(manifest.files[1].digest))
    code, _, said = get(depot, replace(BARE, gpus=(H100,)))
    assert code != 0
    assert "a file of it is damaged or missing" in said


def test_a_library_with_the_c_layer_of_another_release_is_not_taken(depot) -> None:
    (manifest,) = Depot(depot).artifacts.manifests()
    other = replace(manifest, c_layer="0" * 64, flashdepot="0.0.9")
    record = {"schema": ARTIFACT_SCHEMA, "manifest": other.to_json(), "created": 1.0}
    write_record(Depot(depot).layout.artifact(manifest.recipe_key), record)
    code, _, said = get(depot, replace(BARE, gpus=(H100,)))
    assert code != 0
    assert "has the C layer of another flashdepot (0.0.9)" in said


def test_out_copies_the_library_and_the_copy_can_be_moved(depot, tmp_path) -> None:
    _, document, _ = get(depot, replace(BARE, gpus=(H100,)), "--out", str(tmp_path / "vendor"))
    assert document["path"] == str(tmp_path / "vendor")
    (tmp_path / "vendor").rename(tmp_path / "moved")
    assert (tmp_path / "moved/lib/shared/libflashattention.so").resolve().is_file()
    assert not (tmp_path / "moved/include/flash_attention.h").is_symlink()
