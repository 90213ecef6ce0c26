"""`--farm`: a cluster makes the same library, and anyone who reaches its scheduler runs programs on its workers."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import flashdepot
from flashdepot.build.cluster import connect
from flashdepot.cli.app import app
from flashdepot.errors import FlashdepotError, NetworkError, UsageError
from flashdepot.model.limits import joined
from support.farm import NEEDS_DASK, PACKAGE, Farm, wait_for
from support.toolkits import StandIns, make_stand_ins
from support.tools import run_program
from support.upstreams import make_folder


@pytest.fixture
def compilers(tmp_path: Path) -> StandIns:
    made = make_stand_ins(tmp_path / "compilers", 0)
    made.put_zig(tmp_path / "depot" / "toolchains")
    made.put_zig(tmp_path / "worker" / "toolchains")
    return made


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    made = Farm(tmp_path / "farm", {"FLASHDEPOT_UNCONFINED": "1", "FLASHDEPOT_HOME": str(tmp_path / "worker")})
    try:
        made.start(workers=1)
        yield made
    finally:
        made.stop()


@NEEDS_DASK
def test_a_farm_makes_the_same_library_and_says_who_compiled(tmp_path, compilers, farm) -> None:
    tree = make_folder(tmp_path / "tree")
    words = (
        "--upstream",
        str(tree),
        "--passes",
        "fwd",
        "--dtypes",
        "bf16",
        "--arch",
        "80",
        "--cuda",
        str(compilers.cuda),
    )
    environment = {**os.environ, **compilers.environment, "PYTHONPATH": str(PACKAGE), "FLASHDEPOT_OFFLINE": "1"}

    def build(*options: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "flashdepot", "build", *words, "--depot", str(tmp_path / "depot"), "--json"]
        document: dict[str, Any] = json.loads(run_program([*command, *options], env=environment))
        return {**document, "objects": manifest_of(document)["files"], "actions": manifest_of(document)["actions"]}

    wait_for(farm.has_all_workers, "the worker")
    there = build("--farm", str(farm.file))
    compiled = sum(line.startswith("start") for line in compilers.journal())
    assert there["status"] == "built"
    assert sum(there["workers"].values()) == compiled
    (tmp_path / "depot").rename(tmp_path / "from the farm")
    compilers.put_zig(tmp_path / "depot" / "toolchains")
    here = build()
    assert "workers" not in here
    same = ("recipe_key", "objects", "actions", "units")
    assert {name: here[name] for name in same} == {name: there[name] for name in same}


def manifest_of(document: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(document["manifest"]).read_text())
    return read


@pytest.mark.parametrize(
    ("words", "said", "helps", "code"),
    [
        (("--farm", "nowhere.json"), "There is no scheduler file nowhere.json", "--scheduler-file nowhere.json", 3),
        (("--farm", "list.json"), "list.json is not a scheduler file: Expected `object`", "tcp://HOST:8786", 3),
        (
            ("--farm", "{}.json"),
            "{}.json is not a scheduler file: Object missing required field `address`",
            "tcp://",
            3,
        ),
        (("--farm", ""), "The value of --farm is empty", "", 2),
        (("--farm", "http://127.0.0.1:8787"), "is not the address of a Dask scheduler", "tls://HOST:8786", 2),
        (("--farm", "tcp://h:1", "--memory", "4GB"), "--memory 4GB is for this machine", "--resources memory=", 2),
    ],
)
def test_an_invalid_farm_is_refused_at_once(tmp_path, monkeypatch, words, said, helps, code) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[]")
    Path("{}.json").write_text("{}")
    error = refused(tmp_path, *words)
    assert said in error.message
    assert helps in error.hint
    assert error.exit_code == code


def test_without_the_extra_it_is_said_how_to_install_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    error = refused(tmp_path, "--farm", "tcp://127.0.0.1:8786")
    assert error.exit_code == 3
    assert error.hint == f"Install it: {joined([sys.executable, '-m', 'pip', 'install', 'flashdepot[farm]'])}"


def refused(folder: Path, *words: str) -> FlashdepotError:
    """What a build ends with."""
    tree = make_folder(folder / "tree")
    command = ["build", "--upstream", str(tree), "--arch", "80", "--depot", str(folder / "depot"), *words]
    done = CliRunner().invoke(app, command, standalone_mode=False)
    assert isinstance(done.exception, FlashdepotError), done.output
    return done.exception


OPEN_ADDRESSES = [
    "tcp://10.0.0.5:8786",
    "tcp://head:8786",
    "tcp://127.0.0.1.example.org:8786",
    "tcp://localhost.example.org:8786",
    "tcp://user@127.0.0.1@10.0.0.5:1",
    "tcp://[::ffff:10.0.0.1]:8786",
    "tcp://[fe80::1]:8786",
    "tcp://0.0.0.0:8786",
    "ws://head:8786",
    "ucx://head:8786",
    "TLS://head:8786",
    "tcp://",
    "tcp://[",
]


@pytest.mark.parametrize("address", OPEN_ADDRESSES)
def test_a_farm_on_a_network_is_encrypted_or_that_is_said_to_be_meant(tmp_path, address) -> None:
    file = tmp_path / "farm.json"
    file.write_text(json.dumps({"address": address}))
    for farm in (address, str(file)):
        with pytest.raises(UsageError, match="not encrypted") as caught:
            connect(farm)
        assert "tls://" in caught.value.hint
        assert f"--farm open+{farm}" in caught.value.hint.replace("'", "")


@NEEDS_DASK
@pytest.mark.parametrize("farm", ["tcp://127.0.0.1:9", "tcp://[::1]:9", "tcp://localhost:9", "open+tcp://127.0.0.2:9"])
def test_a_farm_of_this_machine_needs_no_encryption(farm) -> None:
    with pytest.raises(NetworkError, match="No Dask scheduler answers"):
        connect(farm)


def test_nothing_of_flashdepot_reads_pickles() -> None:
    package = Path(flashdepot.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "pickle" in path.read_text(encoding="utf-8")] == []
