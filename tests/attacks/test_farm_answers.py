"""A worker, or anyone who is on the network of a farm, answers what it likes."""

from __future__ import annotations

import json
import os
import pickle
import queue
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashdepot.build.farm.cluster import Cluster, connect
from flashdepot.build.farm.executor import FarmExecutor
from flashdepot.build.farm.orders import Bundle, Done, Event, Lost, encode, pack, unpack
from flashdepot.errors import FlashdepotError, IncompatibleError, NetworkError, UsageError
from flashdepot.process.child import Cost
from support.farm import NEEDS_DASK

DONE = Done(Cost(0, 1.0, 1.0, 7), "log", b"object", "a" * 64, {"{src}/a": "b" * 64})


class Bomb:
    def __init__(self, touches: Path) -> None:
        self.touches = touches

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.touches),))


class Client:
    """A Dask client whose workers say what a test wants."""

    status = "running"

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.said: dict[str, Any] = {}
        self.scheduler = SimpleNamespace(identity=None)

    def subscribe_topic(self, _session: str, handler: Any) -> None:
        self.hear = handler

    def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.said

    def sync(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"workers": {"tcp://node:1": {"name": "node", "nthreads": 1, "resources": {"memory": 8}}}}

    def wait_for_workers(self, *_: Any, **__: Any) -> None:
        """There is one."""


def answered(answer: Any) -> Any:
    """What a build takes for the result of a task."""
    cluster = Cluster(Client(), "tcp://127.0.0.1:1", "session")  # type: ignore[arg-type]
    future: Any = SimpleNamespace(status="finished", result=lambda **_: answer)
    return cluster._result("unit", future)


@NEEDS_DASK
def test_an_honest_answer_is_taken() -> None:
    assert answered(("node", "tcp://node:1", encode(DONE))).answer == DONE
    assert answered(("node", "tcp://node:1", encode(Lost()))).answer == Lost()


@NEEDS_DASK
def test_an_answer_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    for answer in (("node", "a", bomb), ("node", "a", encode(bomb)), bomb, (bomb,) * 3):
        assert isinstance(answered(answer).error, FlashdepotError)
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)  # noqa: S301  (so it would have been)
    assert (tmp_path / "ran").exists()


@NEEDS_DASK
@pytest.mark.parametrize(
    "answer",
    [
        None,
        (),
        ("node", "address"),
        ("node", "address", b""),
        ("node", "address", "text"),
        ("node", "address", encode({"type": "Other"})),
        ("node", "address", encode({"type": "Done", "cost": 1, "log": "x"})),
        ("node", "address", encode({"type": "Done", "cost": {}, "log": 1, "output": b"", "inputs": [1]})),
        ("node", "address", encode(DONE)[:-1]),
        ("node", "address", encode(DONE) + b"\0"),
    ],
)
def test_an_answer_of_another_form_is_the_failure_of_its_task(answer: Any) -> None:
    error = answered(answer).error
    assert isinstance(error, FlashdepotError)
    assert "unit" in error.message


@pytest.mark.parametrize(
    "event", [None, 1, "text", {}, {"kind": 1}, {"kind": "memory", "bytes": "many"}, {"kind": "note", "text": ["x"]}]
)
def test_what_a_worker_tells_in_another_form_is_passed_over(event: Any) -> None:
    client = Client()
    cluster = Cluster(client, "tcp://127.0.0.1:1", "session")  # type: ignore[arg-type]
    client.hear((0.0, event))
    client.hear((0.0, {"kind": "memory", "bytes": 7, "worker": "node", "more": 1}))
    assert cluster.events.get_nowait() == Event("memory", bytes=7, worker="node")
    with pytest.raises(queue.Empty):
        cluster.events.get_nowait()


@pytest.mark.parametrize("said", [None, "hello", {}, {"flashdepot": 1, "python": "3"}, {"python": "3.11"}])
def test_a_worker_that_introduces_itself_in_another_form_is_refused(said: Any) -> None:
    client = Client()
    client.said = {"tcp://node:1": said}
    with pytest.raises(IncompatibleError, match="tcp://node:1"):
        Cluster(client, "tcp://127.0.0.1:1", "session").require_same()  # type: ignore[arg-type]


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
def test_a_farm_on_a_network_is_encrypted_or_that_is_said_to_be_meant(tmp_path: Path, address: str) -> None:
    file = tmp_path / "farm.json"
    file.write_text(json.dumps({"address": address}))
    for farm in (address, str(file)):
        with pytest.raises(UsageError, match="not encrypted") as caught:
            connect(farm)
        assert "tls://" in caught.value.hint
        assert f"--farm open+{farm}" in caught.value.hint.replace("'", "")


@NEEDS_DASK
@pytest.mark.parametrize("farm", ["tcp://127.0.0.1:9", "tcp://[::1]:9", "tcp://localhost:9", "open+tcp://127.0.0.2:9"])
def test_a_farm_of_this_machine_needs_no_encryption(farm: str) -> None:
    with pytest.raises(NetworkError, match="No Dask scheduler answers"):
        connect(farm)


def test_a_bundle_that_leads_out_of_its_folder_is_not_unpacked(tmp_path: Path) -> None:
    honest = pack({"a/b.h": lambda: b"x"})
    assert unpack(honest, tmp_path / "honest")
    assert (tmp_path / "honest" / "a" / "b.h").read_bytes() == b"x"
    for name in ("../out.h", "/out.h", "a/../../out.h", "a\\..\\..\\out.h", "", "a//b", "./a"):
        assert not unpack(pack({name: lambda: b"x"}), tmp_path / "bundle")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["honest"]


def test_a_bundle_that_is_something_else_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = pack({"a.h": lambda: bytes(10**6)})
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    for data in (b"", bomb, zlib.compress(bomb), honest.data[:-9], zlib.compress(encode({"a.h": "text"}))):
        assert not unpack(Bundle(honest.digest, data), tmp_path / "bundle")
    monkeypatch.setattr("flashdepot.build.farm.orders._LARGEST", 10**5)
    assert not unpack(honest, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_flashdepot_reads_pickles() -> None:
    source = Path(FarmExecutor.__module__.replace(".", "/"))
    package = Path(connect.__code__.co_filename).parents[len(source.parts) - 2]
    assert package.name == "flashdepot"
    assert [path.name for path in package.rglob("*.py") if "pickle" in path.read_text(encoding="utf-8")] == []
